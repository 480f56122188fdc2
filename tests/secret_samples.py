"""Texts with secrets of every shape that is known, none of them real: the random parts are made here."""

import base64
import json
import random
import string
from dataclasses import dataclass

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
_RANDOM = random.Random(20_250_102)


def made_of(alphabet: str, length: int) -> str:
    """Random characters with a digit and letters of both cases among them where the alphabet has them."""
    text = "".join(_RANDOM.choices(alphabet, k=length - 3))
    return text[:4] + "".join(kind for kind in ("7", "a", "K") if kind in alphabet) + text[4:]


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, and the parts of it that must not survive."""

    name: str
    text: str
    secrets: tuple[str, ...]


def token(name: str, prefix: str, rest: str, *, around: str = "use {} for this") -> Sample:
    return Sample(name, around.format(prefix + rest), (prefix + rest, rest))


def written(name: str, text: str, secret: str) -> Sample:
    """A form in which any secret may be written: `{}` in the text is the place of it."""
    return Sample(name, text.replace("{}", secret), (secret,))


def pem(kind: str) -> Sample:
    body = made_of(LETTERS + "+/", 64)
    return Sample(
        f"PEM {kind}", f"-----BEGIN {kind}-----\n{body}\n{body[::-1]}==\n-----END {kind}-----", (body, body[::-1])
    )


def _plain() -> str:
    return made_of(LETTERS, 18)


def _service_account() -> Sample:
    body = made_of(LETTERS, 64)
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    account = {"type": "service_account", "project_id": "p", "private_key": key, "client_email": "a@p.iam.example"}
    return Sample("GCP service account", json.dumps(account, indent=1), (body,))


def _basic() -> Sample:
    encoded = base64.b64encode(f"user:{_plain()}".encode()).decode()
    return Sample("Basic", f"curl -H 'X-Proxy: Basic {encoded}' https://h.example", (encoded.rstrip("="),))


def _jwt() -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    return f"{head}.{made_of(LETTERS, 40)}.{made_of(LETTERS, 43)}"


TOKENS = (
    token("OpenAI", "sk-", made_of(LETTERS, 48)),
    token("OpenAI project", "sk-proj-", made_of(LETTERS + "-_", 74)),
    token("Anthropic", "sk-ant-api03-", made_of(LETTERS + "-_", 93)),
    token("OpenRouter", "sk-or-v1-", made_of(HEX, 64)),
    token("Groq", "gsk_", made_of(LETTERS, 52)),
    token("xAI", "xai-", made_of(LETTERS, 80)),
    token("Perplexity", "pplx-", made_of(LETTERS, 48)),
    token("Replicate", "r8_", made_of(LETTERS, 37)),
    token("NVIDIA", "nvapi-", made_of(LETTERS + "-_", 64)),
    token("LangSmith", "lsv2_pt_", made_of(HEX, 32) + "_" + made_of(HEX, 10)),
    token("Tavily", "tvly-dev-", made_of(LETTERS, 32)),
    token("Hugging Face", "hf_", made_of(string.ascii_letters, 34)),
    token("Google API", "AIza", made_of(LETTERS + "-_", 35)),
    token("Google OAuth client", "GOCSPX-", made_of(LETTERS + "-_", 28)),
    token("Google OAuth access", "ya29.", made_of(LETTERS + "-_", 120)),
    token("AWS key id", "AKIA", made_of(string.ascii_uppercase + "234567", 20)[:16]),
    token("AWS temporary key id", "ASIA", made_of(string.ascii_uppercase + "234567", 20)[:16]),
    *(token(f"GitHub {kind}", kind, made_of(LETTERS, 36)) for kind in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    token("GitHub fine-grained", "github_pat_", made_of(LETTERS, 22) + "_" + made_of(LETTERS, 59)),
    token("GitLab", "glpat-", made_of(LETTERS + "-_", 20)),
    token("GitLab routable", "glpat-", made_of(LETTERS, 27) + ".01." + made_of(string.ascii_lowercase + "0123", 9)),
    token("GitLab runner", "glrt-", made_of(LETTERS + "-_", 20)),
    token("Slack bot", "xoxb-", f"{10**11}-{10**12}-{made_of(LETTERS, 24)}"),
    token("Slack user", "xoxp-", f"{10**11}-{10**12}-{made_of(HEX, 32)}"),
    token("Slack app", "xapp-1-", f"A{made_of(LETTERS, 10)}-{10**12}-{made_of(HEX, 64)}"),
    token("Slack webhook", "https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/", made_of(LETTERS, 24)),
    token("Discord webhook", "https://discord.com/api/webhooks/123456789012345678/", made_of(LETTERS + "-_", 68)),
    token("Discord bot", "MTIzNDU2Nzg5MDEyMzQ1Njc4.", f"G{made_of(LETTERS, 5)}." + made_of(LETTERS + "-_", 38)),
    token("Telegram", "123456789:AA", made_of(LETTERS + "-_", 33)),
    token("Telegram in an address", "https://api.telegram.org/bot123456789:AA", made_of(LETTERS + "-_", 33)),
    token("Stripe live", "sk_live_", made_of(LETTERS, 24)),
    token("Stripe restricted", "rk_test_", made_of(LETTERS, 99)),
    token("Stripe webhook", "whsec_", made_of(LETTERS, 32)),
    token("Twilio key", "SK", made_of(HEX, 33)[:32]),
    token("SendGrid", "SG.", made_of(LETTERS, 22) + "." + made_of(LETTERS + "-_", 43)),
    token("Mailgun", "key-", made_of(HEX, 33)[:32]),
    token("Mailchimp", "", made_of(HEX, 33)[:32] + "-us12"),
    token("npm", "npm_", made_of(LETTERS, 36)),
    token("PyPI", "pypi-AgEIcHlwaS5vcmc", made_of(LETTERS + "-_", 120)),
    token("RubyGems", "rubygems_", made_of(HEX, 48)),
    token("Docker Hub", "dckr_pat_", made_of(LETTERS + "-_", 27)),
    token("DigitalOcean", "dop_v1_", made_of(HEX, 64)),
    token("Databricks", "dapi", made_of(HEX, 33)[:32] + "-2"),
    token("Vault service", "hvs.", made_of(LETTERS + "-_", 95)),
    token("Vault batch", "hvb.", made_of(LETTERS + "-_", 140)),
    token("Terraform", made_of(LETTERS, 14) + ".atlasv1.", made_of(LETTERS + "-_", 67)),
    token("Doppler", "dp.pt.", made_of(LETTERS, 43)),
    token("Pulumi", "pul-", made_of(HEX, 40)),
    token("age", "AGE-SECRET-KEY-1", made_of(string.ascii_uppercase + string.digits, 58)),
    token("Shopify", "shpat_", made_of(HEX, 33)[:32]),
    token("Square", "sq0csp-", made_of(LETTERS + "-_", 43)),
    token("Sentry", "sntrys_", made_of(LETTERS, 100)),
    token("Grafana", "glsa_", made_of(LETTERS, 32) + "_" + made_of(HEX, 8)),
    token("New Relic", "NRAK-", made_of(string.ascii_uppercase + string.digits, 27)),
    token("Linear", "lin_api_", made_of(LETTERS, 40)),
    token("Notion", "ntn_", made_of(LETTERS, 46)),
    token("Postman", "PMAK-", made_of(HEX, 25)[:24] + "-" + made_of(HEX, 34)),
    token("Figma", "figd_", made_of(LETTERS + "-_", 40)),
    token("Supabase", "sbp_", made_of(HEX, 40)),
    token("PlanetScale", "pscale_tkn_", made_of(LETTERS, 43)),
    token("Tailscale", "tskey-auth-", made_of(LETTERS, 12) + "-" + made_of(LETTERS, 32)),
    token("Fly.io", "fm2_", made_of(LETTERS + "+/", 120)),
    token("Heroku", "HRKU-AA", made_of(LETTERS + "-_", 58)),
    token("Atlassian", "ATATT3", made_of(LETTERS + "-_", 180)),
    token("Dynatrace", "dt0c01.", made_of(string.ascii_uppercase, 24) + "." + made_of(string.ascii_uppercase, 64)),
    token("JWT", "", _jwt()),
    token("JWT in a sentence", "", _jwt(), around="the answer was {}, as before"),
    *(pem(kind) for kind in ("RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY")),
    *(pem(kind) for kind in ("PRIVATE KEY", "DSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")),
    Sample("PEM cut short", f"-----BEGIN RSA PRIVATE KEY-----\n{(body := made_of(LETTERS, 64))}", (body,)),
    Sample("PuTTY", f"Private-Lines: 2\n{(lines := made_of(LETTERS, 64))}\nPrivate-MAC: 00", (lines,)),
    _service_account(),
    _basic(),
)
"""Secrets that are known wherever they stand."""

FORMS = tuple(
    written(name, text, _plain())
    for name, text in {
        "Authorization": "GET / HTTP/1.1\r\nAuthorization: {}\r\nAccept: */*",
        "Authorization Bearer": "Authorization: Bearer {}",
        "Authorization quoted": 'curl -H "Authorization: Token {} x" https://h.example',
        "Digest": 'Authorization: Digest username="u", realm="r", nonce="n", response="{}", opaque="o"',
        "Digest quoted": 'curl -H \'Authorization: Digest username="u", response="{}"\' https://h.example',
        "Bearer": "send it as bearer {}.",
        "Proxy-Authorization": "Proxy-Authorization: ApiKey {}",
        "Cookie": "Cookie: theme=dark; session={}; id=3",
        "Set-Cookie": "Set-Cookie: sid={}; Path=/; HttpOnly",
        "X-Api-Key": "X-Api-Key: {}",
        "X-Auth-Token": "x-auth-token:{}",
        "Azure subscription": "Ocp-Apim-Subscription-Key: {}",
        "AWS secret": "aws_secret_access_key = {}/abc+def",
        "AWS session": "export AWS_SESSION_TOKEN={}",
        "AWS presigned": "https://b.s3.example/x?X-Amz-Date=1&X-Amz-Signature={}&X-Amz-Expires=1",
        "Azure storage": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}==;EndpointSuffix=core.example",
        "Azure SAS": "https://a.blob.example/c/b?sv=2022-11-02&sr=b&sig={}%3D&se=2025",
        "Azure Service Bus": "Endpoint=sb://n.example/;SharedAccessKeyName=Root;SharedAccessKey={}=",
        "ADO": "Server=db;Database=x;User Id=sa;Password={};Encrypt=True",
        "libpq": "host=db port=5432 user=app password={} dbname=x",
        "libpq quoted": "host=db password='two words {}' dbname=x",
        "PostgreSQL URL": "postgresql://app:{}@db.example:5432/x?sslmode=require",
        "Redis URL": "redis://:{}@cache.example:6379/0",
        "MongoDB URL": "mongodb+srv://app:{}@cluster.example/x",
        "AMQP URL": "amqp://guest:{}@mq.example:5672/%2f",
        "slash in a URL password": "postgres://app:a/{}?#x@db.example:5432/x",
        "at in a URL password": "https://u:a@{}@h.example/",
        "Sentry DSN": "https://{}@o1.ingest.example/2",
        "git URL": "git clone https://oauth2:{}@git.example/a/b.git",
        "access_token": "https://h.example/cb#access_token={}&token_type=bearer",
        "query key": "https://maps.example/api?q=x&key={}",
        "OAuth code": "https://h.example/cb?state=1&code={}",
        ".env": "DEBUG=1\nDB_PASSWORD={}\nPORT=80",
        ".env quoted": 'SECRET_KEY="{} with, spaces & more" # note',
        "export": "export SLACK_SIGNING_SECRET='{}'",
        "punctuation": "PASSWORD=a,b;c&d)e{}",
        "quotes within": 'password: "a\\"b{}"',
        "YAML": "db:\n  user: app\n  password: {}\n  port: 5432",
        "YAML block": "db:\n  private_key: |\n    first\n    {}\n    last\n  port: 1",
        "YAML tree": "secrets:\n  db: {}\n  mail: {}\nport: 1",
        "Kubernetes": "apiVersion: v1\nkind: Secret\ndata:\n  password: {}\n",
        "TOML": '[db]\npassword = "{}"\nport = 5432',
        "INI": "[db]\npassword={}\n",
        "JSON": '{"user": "app", "password": "{}", "port": 1}',
        "JSON tree": '{"credentials": {"a": "{}", "b": ["{}"]}, "port": 1}',
        "JSON line": '12:00 sent {"api_key": "{}", "port": 1} to h',
        "JSON tree in a line": '12:00 sent {"secrets": {"a": "}]", "b": "{}"}, "port": 1} to h',
        "JSON escaped": 'log: "{\\"password\\": \\"{}\\", \\"port\\": 1}"',
        "JSON escaped twice": 'log: "{\\\\\\"token\\\\\\": \\\\\\"a b {}\\\\\\", \\\\\\"port\\\\\\": 1}"',
        "JSON with escapes": '{"pass\\u0077ord": "{}"}',
        "Python repr": "Config(user='app', password='{}', port=1)",
        "Python dict": "{'user': 'app', 'client_secret': '{}', 'port': 1}",
        "Python item": 'os.environ["API_TOKEN"] = "{}"',
        "Python annotation": 'password: str = "{}"',
        "Python bytes": "password=b'two words {}'",
        "Python triple": 'token = """two words {}"""',
        "Ruby": "{ :user => 'app', 'password' => '{}' }",
        "flag": "deploy --verbose --password {} --port 80",
        "flag with =": "deploy --api-key={} --port 80",
        "flag quoted": 'deploy --token "two words {}" --port 80',
        "flag in a list": "['deploy', '--password', '{}', '--port', '80']",
        "curl -u": "curl -u app:{} https://h.example",
        "netrc": "machine h.example login app password {}",
        "spaced name": "The API key: {}",
        "markdown": "**Password**: {}",
        "camel case": "clientSecret={}",
        "numbered": "password2={}",
        "refresh token": '"refresh_token":"{}"',
    }.items()
)
FORMS += (Sample("JSON number", '{"password": 1234567890123456, "port": 1}', ("1234567890123456",)),)
"""Forms in which secrets without a shape are written."""

SAMPLES = TOKENS + FORMS

ORDINARY = (
    "The secretary signed the minutes; the key findings are below: see page 3.",
    "the password is required",
    "Enter your password to go on, then press the Return key.",
    "token_type: bearer",
    '{"token_type": "bearer", "max_tokens": 500, "prompt_tokens": 12, "tokens": [1, 2], "tokenizer": "bpe"}',
    "max_tokens=500 completion_tokens=12 total_tokens: 512",
    f"sha256:{made_of(HEX, 64)}",
    f"commit {made_of(HEX, 40)}",
    f"etag {made_of(HEX, 32)}, md5 {made_of(HEX, 33)[:32]}",
    "550e8400-e29b-41d4-a716-446655440000",
    '{"id": "550e8400-e29b-41d4-a716-446655440000", "digest": "' + made_of(HEX, 64) + '"}',
    f"data:image/png;base64,{made_of(LETTERS + '+/', 4_000)}==",
    '{"password": null, "secret": true, "token": false}',
    "password: null\ntoken: true",
    "https://example.com/a?page=2&q=x@y",
    "https://example.com:8443/@user/post",
    "https://en.example/wiki/Signature_(logic)#Basic_notions",
    "write to a@example.com or b@example.org",
    "Basic Instructions for the task-management team",
    "basic authentication and bearer tokens compared",
    "He was the bearer of good news.",
    "<div class='sk-container sk-toggleable__label-arrow'>",
    "the ghosts of key-value stores and hf_hub_download",
    "secret_manager and npm_config_registry are names",
    "Monkeys: 12; keyboard: qwerty; passage: 3; compass=N",
    "rows[0]: ticker=AAPL, period=annual, limit=5",
    "use --token to pass a token, and --password for the password",
    "Authorization is checked, cookies are set.",
    "AKIA is the prefix of a key, ghp_ that of a token, sk- another",
    "4111 1111 1111 1111",
    "x = {'author': 'Ann', 'passengers': 3, 'key': 'B minor'}",
    '{"keys": ["a", "b"], "monkey": "x", "keyword": "y", "assigned": 1, "design": "z"}',
    "see -----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "version 1.2.3, 10:30:45, 2025-01-02T03:04:05+00:00, 3:1",
    "docker run -u 1000:1000 image",
)
"""Texts without secrets that resemble some."""
