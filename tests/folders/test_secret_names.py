"""Test which names mark a file as secret."""

import time

import pytest

from llm_common.folders.exclusion import usually_holds_secrets

SECRET = """
    .env .env.local .env-prod .env_prod .envrc prod.env app.env app.env.local secrets.env env.production env.local
    .env.bak .env~ deploy/.env.production prod.env.old aws_credentials credentials credentials.csv credentials.json
    credentials.toml credentials.yml.enc application_default_credentials.json aws.credentials .git-credentials
    .smbcredentials creds.txt gha-creds-1.json db-credentials.yaml service-account.json service_account_prod.json
    client_secret_1.apps.json client_secrets.json db-secret.yaml secret.toml secrets.yaml secrets.prod.yaml
    secrets.txt firebase-adminsdk-ab.json my-firebase-adminsdk-ab.json gcp-key.json key.json my.key.json api_key.txt
    apikey.txt api-keys.json accessKeys.csv rootkey.csv secret_key deploy_key deploy_rsa id_rsa id_rsa.bak
    id_rsa_work id_ed25519 ID_RSA server.key server.key.old certs/server.pem x.p12 AuthKey_AB.p8 signing.keystore
    key.properties master.key home.ovpn wg0.conf token.txt token.json github_token auth_token.txt access_tokens.json
    oauth_tokens .vault-token passwords.txt Passwords.CSV db_password db_password.txt root-password passwd htpasswd
    .htpasswd users.htpasswd vault_pass.txt .vault_pass .pgpass .my.cnf .netrc _netrc .npmrc .pypirc .s3cfg
    rclone.conf .dockercfg cookies.txt .bash_history .zsh_history .python_history .node_repl_history .psql_history
    kubeconfig kubeconfig-prod kubeconfig.yaml prod.kubeconfig .kube/config .aws/config home/.ssh/config
    .docker/config.json terraform.tfstate terraform.tfstate.backup terraform.tfvars prod.auto.tfvars
    prod.tfvars.json wp-config.php wp-config-prod.php wp-config.php.bak local.settings.json
"""
HARMLESS = """
    credentials.py secrets.py secrets.md secret.go token.py token.ts tokens.py key.ts key.go keys.py env.py env.sh
    env.d.ts vite-env.d.ts environment.ts environment.yml .environment passwords.go passwd.c shadow.css auth.py
    auth.json cookies.py docs/credentials.md credentials.html key.md history.py history.md command_history.py
    service_account.py serviceaccount.yaml kubeconfig.go main.tf variables.tf monkey.txt hockey.json turkey
    keyboard.json keymap.json tokenizer.txt tokenizer.json tokenizer_config.json tokens.json design-tokens.json
    special_tokens.txt token_count.txt password_reset_subject.txt reset-password.json common-passwords.txt
    secretary.txt secret-garden.txt compass.txt public_key.txt primary_key.json sort-key.json id_rsa.pub
    deploy_key.pub config.json docker/config.json settings.json session.json .env.example .env.sample .env.template
    .env.dist example.env terraform.tfvars.example credentials.example.json wp-config-sample.php
    wp-config-sample.php.bak .gitignore .bashrc Makefile LICENSE package.json aws/config ssh/config
"""


@pytest.mark.parametrize("folder", ["", "deep/"])
def test_names_of_secret_files_are_recognized_f_165(folder: str) -> None:
    assert [name for name in SECRET.split() if not usually_holds_secrets(folder + name)] == []


@pytest.mark.parametrize("folder", ["", "deep/"])
def test_names_of_sources_and_samples_are_not_secret_f_165(folder: str) -> None:
    assert [name for name in HARMLESS.split() if usually_holds_secrets(folder + name)] == []


@pytest.mark.parametrize(
    "name", ["a_" * 120, f"a{'.env' * 60}x", f"a.env{'_dev' * 60}!", f"{'~' * 250}x", " key" * 60]
)
def test_long_names_are_checked_quickly_f_165(name: str) -> None:
    begin = time.thread_time()
    assert usually_holds_secrets(name) is name.endswith("key")
    assert time.thread_time() - begin < 1
