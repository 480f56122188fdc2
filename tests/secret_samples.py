"""Generates texts with secrets of all known shapes and forms. None of the secrets is real."""

import base64
import json
import random
import string
from dataclasses import dataclass

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
_RANDOM = random.Random(20_250_102)


def made_of(alphabet: str, length: int) -> str:
    """Return random characters, with a digit and both cases if the alphabet has them."""
    text = "".join(_RANDOM.choices(alphabet, k=length - 3))
    return text[:4] + "".join(kind for kind in ("7", "a", "K") if kind in alphabet) + text[4:]


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, and its parts that must be redacted."""

    name: str
    text: str
    secrets: tuple[str, ...]


def token(name: str, prefix: str, body: str, *, around: str = "use {} for this") -> Sample:
    return Sample(name, around.format(prefix + body), (prefix + body, body))


def form(name: str, text: str, secret: str) -> Sample:
    """Return a text with the secret in place of `{}`."""
    return Sample(name, text.replace("{}", secret), (secret,))


def pem(kind: str) -> Sample:
    body = made_of(LETTERS + "+/", 64)
    return Sample(
        f"PEM {kind}",
        f"-----BEGIN {kind}-----\n{body}\n{body[::-1]}==\n-----END {kind}-----",
        (body, body[::-1]),
    )


def _plain() -> str:
    return made_of(LETTERS, 18)


def _service_account() -> Sample:
    body = made_of(LETTERS, 64)
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key": key,
        "client_email": "a@p.iam.example",
    }
    return Sample("GCP service account", json.dumps(account, indent=1), (body,))


def _basic() -> Sample:
    encoded = base64.b64encode(f"user:{_plain()}".encode()).decode()
    return Sample(
        "Basic", f"curl -H 'X-Proxy: Basic {encoded}' https://h.example", (encoded.rstrip("="),)
    )


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
    *(
        token(f"GitHub {kind}", kind, made_of(LETTERS, 36))
        for kind in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")
    ),
    token("GitHub fine-grained", "github_pat_", made_of(LETTERS, 22) + "_" + made_of(LETTERS, 59)),
    token("GitLab", "glpat-", made_of(LETTERS + "-_", 20)),
    token(
        "GitLab routable",
        "glpat-",
        made_of(LETTERS, 27) + ".01." + made_of(string.ascii_lowercase + "0123", 9),
    ),
    token("GitLab runner", "glrt-", made_of(LETTERS + "-_", 20)),
    token("Slack bot", "xoxb-", f"{10**11}-{10**12}-{made_of(LETTERS, 24)}"),
    token("Slack user", "xoxp-", f"{10**11}-{10**12}-{made_of(HEX, 32)}"),
    token("Slack app", "xapp-1-", f"A{made_of(LETTERS, 10)}-{10**12}-{made_of(HEX, 64)}"),
    token(
        "Slack webhook",
        "https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/",
        made_of(LETTERS, 24),
    ),
    token(
        "Discord webhook",
        "https://discord.com/api/webhooks/123456789012345678/",
        made_of(LETTERS + "-_", 68),
    ),
    token(
        "Discord bot",
        "MTIzNDU2Nzg5MDEyMzQ1Njc4.",
        f"G{made_of(LETTERS, 5)}." + made_of(LETTERS + "-_", 38),
    ),
    token("Telegram", "123456789:AA", made_of(LETTERS + "-_", 33)),
    token(
        "Telegram in an address",
        "https://api.telegram.org/bot123456789:AA",
        made_of(LETTERS + "-_", 33),
    ),
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
    token(
        "Dynatrace",
        "dt0c01.",
        made_of(string.ascii_uppercase, 24) + "." + made_of(string.ascii_uppercase, 64),
    ),
    token("z.ai", "", made_of(HEX, 33)[:32] + "." + made_of(LETTERS, 16)),
    token(
        "z.ai in a header",
        "",
        made_of(HEX, 33)[:32] + "." + made_of(LETTERS, 16),
        around="x-key {}\n",
    ),
    token("ElevenLabs", "sk_", made_of(HEX, 48)),
    token("Langfuse", "sk-lf-", "1b4e28ba-2fa1-41d2-883f-0016d3cca427"),
    token("Cerebras", "csk-", made_of(LETTERS, 48)),
    token("Together", "tgp_v1_", made_of(LETTERS + "-_", 43)),
    token("Fireworks", "fw_", made_of(LETTERS, 24)),
    token("Jina", "jina_", made_of(LETTERS, 60)),
    token("Voyage", "pa-", made_of(LETTERS + "-_", 43)),
    token("Firecrawl", "fc-", made_of(HEX, 33)[:32]),
    token("Apify", "apify_api_", made_of(LETTERS, 36)),
    token("E2B", "e2b_", made_of(HEX, 40)),
    token("Pinecone", "pcsk_", made_of(LETTERS, 6) + "_" + made_of(LETTERS, 63)),
    token("Weights & Biases", "wandb_v1_", made_of(LETTERS, 60)),
    token("Bedrock", "ABSK", made_of(LETTERS + "+/", 128)),
    token("Alibaba", "LTAI", "5t" + made_of(LETTERS, 18)),
    token("Tencent", "AKID", made_of(LETTERS, 32)),
    token("Cloudflare origin", "v1.0-", made_of(HEX, 25)[:24] + "-" + made_of(HEX, 147)),
    token("Netlify", "nfp_", made_of(LETTERS, 36)),
    token("Render", "rnd_", made_of(LETTERS, 28)),
    token("Scalingo", "tk-us-", made_of(LETTERS + "-_", 48)),
    token("OpenShift", "sha256~", made_of(LETTERS + "-_", 43)),
    token("Azure AD", made_of(LETTERS, 4)[:3] + "8Q~", made_of(LETTERS + "_.~-", 34)),
    token("Azure account key", "", made_of(LETTERS + "+/", 86) + "=="),
    token("Bitbucket", "ATBB", made_of(LETTERS, 28)),
    token("crates.io", "cio", made_of(LETTERS, 32)),
    token("NuGet", "oy2", made_of(string.ascii_lowercase + string.digits, 44)[:43]),
    token("Clojars", "CLOJARS_", made_of(HEX, 60)),
    token("JFrog", "AKCp", made_of(LETTERS, 69)),
    token("JFrog reference", "cmVmd", made_of(LETTERS, 59)),
    token("CircleCI", "CCIPAT_", made_of(LETTERS, 22) + "_" + made_of(HEX, 40)),
    token("Buildkite", "bkua_", made_of(HEX, 40)),
    token("Sonar", "squ_", made_of(HEX, 41)[:40]),
    token("Sourcegraph", "sgp_", made_of(HEX, 17)[:16] + "_" + made_of(HEX, 41)[:40]),
    token("1Password", "ops_", "eyJ" + made_of(LETTERS, 250)),
    token(
        "1Password account",
        "A3-",
        "-".join(made_of(string.ascii_uppercase + "7", n + 1)[:n] for n in (6, 6, 5, 5, 5, 5)),
    ),
    token("Infracost", "ico-", made_of(LETTERS, 32)),
    token("Prefect", "pnu_", made_of(LETTERS, 36)),
    token("Octopus", "API-", made_of(string.ascii_uppercase + string.digits, 27)[:26]),
    token("ReadMe", "rdme_", made_of(string.ascii_lowercase + string.digits, 70)),
    token(
        "Harness",
        "pat.",
        made_of(LETTERS, 22) + "." + made_of(LETTERS, 24) + "." + made_of(LETTERS, 20),
    ),
    token("Neon", "npg_", made_of(LETTERS, 16)),
    token("Neon API", "napi_", made_of(string.ascii_lowercase + string.digits, 64)),
    token("ClickHouse", "4b1d", made_of(LETTERS, 38)),
    token("Airtable", "pat", made_of(LETTERS, 14) + "." + made_of(HEX, 65)[:64]),
    token("Dropbox", "sl.", made_of(LETTERS + "-_", 136)),
    token("Contentful", "CFPAT-", made_of(LETTERS + "-_", 43)),
    token("MaxMind", "", made_of(LETTERS, 6) + "_" + made_of(LETTERS, 29) + "_mmk"),
    token(
        "Slack configuration", "xoxe.xoxp-1-", made_of(string.ascii_uppercase + string.digits, 163)
    ),
    token(
        "Teams webhook",
        "https://a.webhook.office.com/webhookb2/",
        f"{made_of(HEX, 32)}@{made_of(HEX, 32)}/x",
    ),
    token("Brevo", "xkeysib-", made_of(HEX, 65)[:64] + "-" + made_of(LETTERS, 16)),
    token("Resend", "re_", made_of(LETTERS, 8) + "_" + made_of(LETTERS, 24)),
    token("Square access", "EAAA", made_of(LETTERS + "-_", 60)),
    token(
        "Braintree",
        "access_token$production$",
        made_of("abcdefgh0127", 18)[:16] + "$" + made_of(HEX, 33)[:32],
    ),
    token("Razorpay", "rzp_live_", made_of(LETTERS, 20)),
    token("EasyPost", "EZAK", made_of(LETTERS, 54)),
    token("Shippo", "shippo_live_", made_of(HEX, 41)[:40]),
    token("Duffel", "duffel_live_", made_of(LETTERS + "-_", 43)),
    token("Flutterwave", "FLWSECK_TEST-", made_of(HEX, 33)[:32]),
    token("Plaid", "access-production-", "8ab976e6-64bc-4b38-98f7-731e7a349970"),
    token("PostHog", "phx_", made_of(LETTERS, 43)),
    token("HubSpot", "pat-na1-", "8ab976e6-64bc-4b38-98f7-731e7a349971"),
    token("Frame.io", "fio-u-", made_of(LETTERS + "-_", 64)),
    token("Typeform", "tfp_", made_of(LETTERS, 44) + "_" + made_of(LETTERS, 14)),
    token("Facebook", "EAA", "CEdEose0cBA" + made_of(LETTERS, 140)),
    token("JWT", "", _jwt()),
    token("JWT in a query", "", _jwt().replace(".", "%2E"), around="see /x?next=%2Fa%3Ft%3D{}"),
    token(
        "Kubernetes GitHub",
        "",
        base64.b64encode(("gh" + "p_" + made_of(LETTERS, 36)).encode()).decode(),
    ),
    token(
        "Kubernetes Anthropic",
        "",
        base64.b64encode(("sk-" + "ant-api03-" + made_of(LETTERS, 90)).encode()).decode(),
    ),
    token(
        "Kubernetes PEM",
        "",
        base64.b64encode(
            ("-----BEGIN " + "RSA PRIVATE KEY-----\n" + made_of(LETTERS, 64)).encode()
        ).decode(),
    ),
    token("JWT in a sentence", "", _jwt(), around="the answer was {}, as before"),
    *(
        pem(kind)
        for kind in (
            "RSA PRIVATE KEY",
            "EC PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "ENCRYPTED PRIVATE KEY",
        )
    ),
    *(pem(kind) for kind in ("PRIVATE KEY", "DSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")),
    Sample(
        "PEM cut short",
        f"-----BEGIN RSA PRIVATE KEY-----\n{(body := made_of(LETTERS, 64))}",
        (body,),
    ),
    Sample(
        "PuTTY", f"Private-Lines: 2\n{(lines := made_of(LETTERS, 64))}\nPrivate-MAC: 00", (lines,)
    ),
    _service_account(),
    _basic(),
)
"""Secrets that are recognised by their shape, in any text."""

FORMS = tuple(
    form(name, text, _plain())
    for name, text in {
        "Authorization": "GET / HTTP/1.1\r\nAuthorization: {}\r\nAccept: */*",
        "Authorization Bearer": "Authorization: Bearer {}",
        "Authorization quoted": 'curl -H "Authorization: Token {} x" https://h.example',
        "Digest": 'Authorization: Digest username="u", realm="r", nonce="n", response="{}", '
        'opaque="o"',
        "Digest quoted": 'curl -H \'Authorization: Digest username="u", response="{}"\' '
        "https://h.example",
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
        "JSON escaped twice": "log: "
        '"{\\\\\\"token\\\\\\": \\\\\\"a b {}\\\\\\", \\\\\\"port\\\\\\": 1}"',
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
FORMS += tuple(
    form(name, text, made_of(LETTERS, 18))
    for name, text in {
        "pair JSON": '{"env": [{"name": "API_KEY", "value": "{}"}, {"name": "PORT", "value": "80"}]}',
        "pair JSON in a line": '12:00 env [{"name": "DB_PASSWORD", "value": "{}"}] set',
        "pair key": '{"key": "password", "value": "{}"}',
        "pair repr": "[{'name': 'STRIPE_KEY', 'value': '{}'}]",
        "pair YAML": "env:\n  - name: AUTH_TOKEN\n    value: {}\n  - name: PORT\n    value: '80'\n",
        "pair YAML quoted": 'env:\n  - name: AUTH_TOKEN\n    value: "{}"\n',
        "header pairs": '[["Accept", "text/html"], ["X-Api-Key", "{}"]]',
        "header pairs repr": "headers = [('Accept', 'x'), ('Authorization', 'Bearer {}')]",
        "header tuple": '("Cookie", "sid={}")',
        "header set": 'request.headers.set("X-Auth-Token", "{}");',
        "HAR": '{"headers": [{"name": "Authorization", "value": "Token {}"}]}',
        "define": "define('DB_PASSWORD', '{}');",
        "setdefault": 'os.environ.setdefault("SECRET_KEY", "{}")',
        "setenv call": "setenv('GITHUB_TOKEN', '{}', 1);",
        "appSettings": '<add key="ApiKey" value="{}" />',
        "HTML input": '<input type="hidden" name="csrf_token" value="{}">',
        "HTML password": '<input type="password" id="p" value="{}">',
        "XML": "<config><user>app</user><password>{}</password></config>",
        "XML namespace": "<wsse:Password Type='PasswordText'>{}</wsse:Password>",
        "XML camel": "<apiKey>{}</apiKey>",
        "Maven": "<server><id>x</id><username>u</username><password>{}</password></server>",
        "plist": "<dict><key>Password</key><string>{}</string></dict>",
        "Android": '<string name="google_api_key">{}</string>',
        "XML attribute": '<db user="app" password="{}"/>',
        "curl list": '["curl", "-u", "bob:{}", "https://h.example"]',
        "curl list repr": "['curl', '--user', 'bob:{}', 'https://h.example']",
        "curl quoted": "curl -u 'bob:{}' https://h.example",
        "curl user": "curl --user bob:{} https://h.example",
        "curl proxy": "curl --proxy-user bob:{} https://h.example",
        "docker login": "docker login -u bob -p {} registry.example",
        "docker login list": '["docker", "login", "-u", "bob", "-p", "{}"]',
        "sshpass": "sshpass -p '{}' ssh u@h.example",
        "sshpass attached": "sshpass -p{} ssh u@h.example",
        "openssl": "openssl enc -aes-256-cbc -pass pass:{} -in a",
        "openssl passin": "openssl rsa -in k.pem -passin pass:{}",
        "mysql": "mysql -u root -p{} shop",
        "redis-cli": "redis-cli -h h -a {} ping",
        "mongo": "mongosh -u root -p {} admin",
        "wget": "wget --user=u --password={} https://h.example",
        "sessionid": "GET /x\nsessionid={}; path=/",
        "PHPSESSID": "PHPSESSID={}",
        "JSESSIONID": "https://h.example/a;JSESSIONID={}?x=1",
        "DB_PASS": "DB_PASS={}\nDB_USER=app",
        "pass": "host=h user=u pass={}",
        "pw": "login?user=u&pw={}",
        "pwd": "Server=h;UID=sa;PWD={};",
        "STRIPE_KEY": "STRIPE_KEY={}",
        "OPENAI_KEY": "export OPENAI_KEY={}",
        "ENCRYPTION_KEY": "ENCRYPTION_KEY={}=",
        "ENV": "FROM x\nENV API_TOKEN {}\nRUN y",
        "ARG": "ARG NPM_TOKEN={}",
        "SetEnv": "SetEnv DB_PASSWORD {}",
        "setx": "setx API_TOKEN {}",
        "PowerShell": '$env:API_TOKEN = "{}"',
        "nginx": "proxy_set_header X-Api-Key {};",
        "redis.conf": "port 6379\nrequirepass {}\n",
        "heroku": "heroku config:set SECRET_KEY={}",
        "percent": "POST body: user%3Dapp%26token%3D{}%26x%3D1",
        "percent JSON": "q=%7B%22password%22%3A%22{}%22%7D",
        "percent brackets": "user%5Bname%5D=app&user%5Bpassword%5D={}&x=1",
        "brackets form": "user[name]=app&user[password]={}&x=1",
        "form": "username=app&password={}&remember=1",
        "multipart": '--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{}\r\n--b--',
        "multipart escaped": 'body: "--b\\r\\nDisposition: form-data; '
        'name=\\"token\\"\\r\\n\\r\\n{}\\r\\n--b--"',
        "CSV": "user,password,email\nann,{},ann@a.example\n",
        "CSV of AWS": "User name,Access key ID,Secret access key\nann,AK1,{}/abc\n",
        "TSV": "id\tapi_key\tname\n1\t{}\tann\n",
        "markdown table": "| user | password |\n| --- | --- |\n| ann | {} |\n",
        ".pgpass": "db.example:5432:shop:app:{}",
        "Java": 'String apiKey = "{}";',
        "Java properties": "spring.datasource.password={}",
        "Go": 'apiKey := "{}"',
        "Rust": 'let api_key: &str = "{}";',
        "C#": 'public const string ApiKey = "{}";',
        "JS": "const API_TOKEN = '{}';",
        "JS object": "{ user: 'app', password: '{}', port: 1 }",
        "PHP array": "'password' => '{}',",
        "HCL": 'resource "x" "y" {\n  password = "{}"\n}',
        "Ansible": "ansible_become_pass: {}",
        "Docker config": '{"auths": {"h.example": {"auth": "{}"}}}',
        "npmrc": "//registry.example/:_authToken={}",
        "pip.conf": "index-url = https://u:{}@pypi.example/simple",
        "JDBC": "jdbc:mysql://h/x?user=app&password={}",
        "S3 query": "https://b.example/x?AWSAccessKeyId=a&Signature={}%3D&Expires=1",
        "webhook secret": '"webhook_secret": "{}"',
        "GraphQL": 'mutation { login(user: "a", password: "{}") { id } }',
        "log": "2025-01-02 INFO token={} user=ann",
        "log bracket": "[auth] token=[{}]",
        "traceback": "ValueError: bad call(user='a', api_key='{}')",
        "dataclass repr": "Settings(host='h', secret_key='{}', port=1)",
        "SecretStr": "password: SecretStr = SecretStr('x') # token: {}",
        "aws cli": "aws configure set aws_secret_access_key {}",
        "CLI token": "gh auth login --token {}",
        "vault kv": "vault kv put secret/x password={}",
        "YAML list": "passwords:\n  - {}\n  - other\n",
        "JSON list": '{"api_keys": ["{}"], "n": 1}',
        "nested tree": '{"credentials": {"aws": {"id": "x", "hidden": "{}"}}}',
    }.items()
)
FORMS += tuple(
    Sample(f"short: {text.replace('{}', '')[:30]}", text.replace("{}", secret), (secret,))
    for text, secret in (
        ('{"password": "{}"}', "hunter2"),
        ('{"user": "a", "passwd": "{}"}', "swordfish"),
        ("password={}", "zebra7q"),
        ("password = {}", "Winter1987"),
        ("password: {}", "s3cr3t!x"),
        ("DB_PASSWORD={}", "openses"),
        ("DB_PASS={}", "grault8"),
        ("connect(user='a', password='{}')", "tr0ub4dor&3"),
        ("mysql://root:{}@h/x", "toorlo"),
        ("--password {} --port 1", "plugh4you"),
        ("<password>{}</password>", "p4ssw0rt"),
        ('{"passphrase": "{}"}', "correct horse battery staple"),
        ('{"name": "DB_PASSWORD", "value": "{}"}', "xyzzy22"),
        ('{"pwd": "{}"}', "87654321"),
        ("user,password\nann,{}\n", "corge91x"),
        ('"secret": "{}"', "shhh-its-me"),
    )
)
FORMS += (
    Sample("JSON number", '{"password": 1234567890123456, "port": 1}', ("1234567890123456",)),
)
"""Secrets without a shape, recognised by the form of the text around them."""

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
    # code
    "token = next(tokens)",
    "token = tokens[0]",
    "    token = self.lexer.get_token()\n    if token is None:\n        return",
    "def login(user: str, password: str, token: str | None = None) -> None: ...",
    "password = getpass.getpass()",
    "password = getpass('Password: ')",
    "password: str",
    "password: SecretStr | None = None",
    "const token = await getToken({ audience });",
    "secret = os.environ['SECRET']",
    "api_key=os.getenv('API_KEY')",
    "client = OpenAI(api_key=settings.openai_api_key)",
    "if (token === undefined) { return; }",
    "enum { TOKEN = 1, SECRET = 2 };",
    "enum Kind { TOKEN = 1 }",
    "#define TOKEN_MAX 10\n#define ERROR_INVALID_PASSWORD 86",
    "ERROR_NULL_LM_PASSWORD = 1304",
    "for key, token in zip(keys, tokens): print(key, token)",
    "lambda token: token.text",
    "sort_key = lambda row: row['id']",
    "cache_key = f'{user}:{page}'",
    "primary_key: id",
    "PRIMARY KEY (id), FOREIGN KEY (user_id) REFERENCES users (id), password VARCHAR(255) NOT NULL",
    "password = models.CharField(max_length=128)",
    "type Props = { token: string; secret?: string; password: Password };",
    "struct Auth { token: String, secret: Vec<u8> }",
    "auth = HTTPBasicAuth(user, password)",
    "headers = {'Authorization': f'Bearer {token}'}",
    'headers["Authorization"] = "Bearer " + token',
    "curl -H 'Authorization: Bearer $TOKEN' https://h.example",
    "curl -u $USER:$PASS https://h.example",
    "export API_KEY=${API_KEY}",
    "API_KEY=<your-api-key>",
    "API_KEY=your-api-key-here",
    "OPENAI_API_KEY=sk-...",
    "api_key: {{ .Values.apiKey }}",
    "password: ${{ secrets.DB_PASSWORD }}",
    "password: ********",
    "usage: tool [--token TOKEN] [--password PASSWORD]",
    "parser.add_argument('--token', help='the token')",
    "tokens = tokenizer.encode(text); token_ids = tokens.ids",
    "next_token: int = logits.argmax()",
    "assert token.type == TokenType.NAME",
    "password=password, token=token)",
    "super().__init__(token=token, secret=secret)",
    "key = 'a' if token else 'b'",
    "sig = inspect.signature(func)",
    "signature: (a: int, b: str) -> None",
    "auth: user bob",
    "@app.route('/token', methods=['POST'])",
    "re.compile(r'token=(?P<token>[^&]+)')",
    "print('Password: ', end='')",
    "raise ValueError('password: must be at least 8 characters')",
    "PWD=/home/ann/project",
    "OLDPWD=/tmp",
    "SSH_AUTH_SOCK=/tmp/ssh-x/agent.1234",
    "KEY=value",
    # data
    '{"token": "the", "count": 10}',
    (
        '[{"token": "The", "pos": "DT"}, {"token": "cat", "pos": "NN"}, '
        '{"token": "2024", "pos": "CD"}]'
    ),
    '{"token": "USDC", "price": 1.0}',
    '{"token": "BTC-USD"}',
    '{"tokens": ["the", "cat", "sat"], "token": "sat"}',
    '{"sig": "Take 1 tablet by mouth daily"}',
    '{"time_signature": "4/4", "key_signature": "B minor"}',
    '{"credentials": "MD, PhD"}',
    '{"signature": "def f(x: int) -> str"}',
    '{"type": "object", "properties": {"password": {"type": "string", "minLength": 8}}, "required": ["password"]}',
    '{"properties": {"api_key": {"type": "string", "description": "The key of your account"}}}',
    '{"fields": {"password": "CharField(max_length=128)", "token": "string"}}',
    '{"errors": {"password": ["This field is required.", "Too short"]}}',
    '{"password": "required"}',
    '{"password": ""}',
    '{"password": "********"}',
    '{"password": "<hidden>"}',
    '{"auth": {"type": "oauth2", "scopes": ["read"]}}',
    '{"auth": "none"}',
    '{"cookie": "chocolate chip"}',
    '{"next_page_token": "CAUQAA9f3a7c51e2b4"}',
    '{"nextPageToken": "CAUQAA9f3a7c51e2b4"}',
    '{"primary_key": "user_9f3a7c51e2"}',
    '{"key": "B minor", "pass": 12, "fail": 0}',
    '{"pass": true, "result": "pass"}',
    '{"pass": "first"}',
    '{"otp": 26.1}',
    "otp: 26.1",
    '{"secret_count": 3, "password_length": 12, "token_count": 512}',
    '{"public_key": "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQ"}',
    '{"name": "token", "value": "the"}',
    '{"name": "password", "type": "string", "value": "The password of the user"}',
    '[["token", "count"], ["the", "10"]]',
    '["user", "password", "email"]',
    '{"author": "Token Ring", "passage": "Secret Garden"}',
    "token,count,pos\nthe,10,DT\ncat,4,NN\n",
    "user,password_changed,email\nann,2024-01-02,ann@a.example\n",
    "<token>the</token><password></password>",
    (
        "<label for='password'>Password</label><input type='password' name='password' "
        "placeholder='Your password'>"
    ),
    "https://h.example/search?code=US&key=name&auth=basic",
    "https://h.example/reset?code=ABC",
    "git clone ssh://git@github.com/a/b.git",
    "ssh://deploy@host.example/path",
    "postgresql://user:password@localhost/db",
    "https://user:${PASSWORD}@h.example/",
    "ENV TOKEN_FILE /run/secrets/token",
    # prose
    "The token: a small coin used in arcades.",
    "Password: must be at least 8 characters long.",
    "The secret: nobody knows it.",
    "Authorization: required for all endpoints.",
    "Cookie: a small piece of data stored by a browser.",
    "Key: bold means new; italic means changed.",
    "His signature: a bow at the end of each show.",
    "The password was changed; the token expires in 2 hours.",
    "Passcode: see your invitation.",
    "Season pass: 120 euros. Boarding pass: gate B12.",
    "Bearer authentication-scheme is defined in a standard.",
    "Basic understanding of tokens is required.",
    "Secret: The History of a Garden, 1911",
    "auth: see the section on sessions",
    "Tokens: 512 in, 128 out; cost: 0.01",
    "The PRIVATE KEY goes between -----BEGIN PRIVATE KEY----- and its end.",
    "model=gpt-4o-mini-2024-07-18 and text-embedding-3-small",
    "uses AES-256-GCM, utf-8, sha256sum and x86_64-linux-gnu",
)
"""Texts without secrets that resemble those with secrets."""
