"""What secrets look like: the forms in which they are written, and the shapes of services' keys with their sources.

A shape is a few literal prefixes and a pattern for the rest. A pattern runs only where one of its literals occurs, in
time linear in the text. A secret without a shape (an AWS secret key, a Twilio auth token, a password) is recognised by
the name that it is assigned to; see `assignments`.

Card and account numbers stay: they authorise nothing alone, and most digits that pass their checksum are something
else. A caller can add a pattern for them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

Span: TypeAlias = tuple[int, int, str]
"""A secret in a text: its start, its end, and its replacement."""

_REST = r"[A-Za-z0-9_-]"
_RUN = re.compile(r"[A-Za-z0-9]{16}")


@dataclass(frozen=True, slots=True)
class TokenShape:
    """The shape of one service's keys.

    Attributes:
        name: The service.
        prefixes: Literal beginnings; a letter or a digit before one rules it out.
        rest: Pattern of the characters after the prefix.
        source: Page on which the service, or a register, documents the shape.
        random: Whether only random text counts, because words such as `sk-container-class` match too.
    """

    name: str
    prefixes: tuple[str, ...]
    rest: str
    source: str
    random: bool = True

    def expression(self) -> str:
        """A pattern for a whole key; the literal comes first, because the engine searches for it quickly."""
        starts = "|".join(rf"{literal}(?<![A-Za-z0-9]{literal})" for literal in map(re.escape, self.prefixes))
        return rf"(?:{starts}){self.rest}"


def _looks_random(text: str) -> bool:
    """Whether a text mixes cases, or has digits and a long run, as keys do and identifiers do not."""
    if not (text.islower() or text.isupper()):
        return any(map(str.isalpha, text))
    return any(map(str.isdigit, text)) and _RUN.search(text) is not None


_REGISTER = "docs.github.com/code-security/secret-scanning/introduction/supported-secret-scanning-patterns"

TOKEN_SHAPES = (
    TokenShape("OpenAI, Anthropic, OpenRouter", ("sk-",), rf"{_REST}{{16,}}", "platform.openai.com/docs/api-reference"),
    TokenShape("Groq", ("gsk_",), r"[A-Za-z0-9]{32,}", "console.groq.com/docs"),
    TokenShape("xAI", ("xai-",), r"[A-Za-z0-9]{32,}", "docs.x.ai"),
    TokenShape("Perplexity", ("pplx-",), r"[A-Za-z0-9]{32,}", "docs.perplexity.ai"),
    TokenShape("Replicate", ("r8_",), r"[A-Za-z0-9]{30,}", "replicate.com/docs/topics/security/api-tokens"),
    TokenShape("NVIDIA", ("nvapi-",), rf"{_REST}{{32,}}", "docs.api.nvidia.com"),
    TokenShape("LangSmith", ("lsv2_",), r"[A-Za-z0-9_]{32,}", "docs.smith.langchain.com"),
    TokenShape("Tavily", ("tvly-",), rf"{_REST}{{20,}}", "docs.tavily.com"),
    TokenShape("Hugging Face", ("hf_", "api_org_"), r"\w{16,}", "huggingface.co/docs/hub/security-tokens"),
    TokenShape(
        "Google API key", ("AIza",), rf"{_REST}{{30,}}", "cloud.google.com/docs/authentication/api-keys", random=False
    ),
    TokenShape(
        "Google OAuth", ("GOCSPX-", "ya29.", "1//0"), r"[\w.-]{20,}", "developers.google.com/identity/protocols"
    ),
    TokenShape(
        "AWS key id",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        r"[0-9A-Z]{16}(?![A-Za-z0-9])",
        "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html",
        random=False,
    ),
    TokenShape(
        "GitHub",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\w{16,}",
        "github.blog/2021-04-05-behind-githubs-new-authentication-token-formats",
    ),
    TokenShape(
        "GitLab",
        (
            *("glpat-", "gldt-", "glrt-", "glrtr-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "glsoat-"),
            *("glffct-", "gloas-", "glwt-", "GR1348941"),
        ),
        r"[\w.-]{16,}",
        "docs.gitlab.com/security/tokens",
    ),
    TokenShape(
        "Slack",
        ("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"),
        r"[\w%-]{8,}",
        "docs.slack.dev/authentication/tokens",
    ),
    TokenShape(
        "Slack webhook",
        ("hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/"),
        r"[\w/]{20,}",
        "docs.slack.dev/messaging/sending-messages-using-incoming-webhooks",
    ),
    TokenShape(
        "Discord webhook",
        ("discord.com/api/webhooks/", "discordapp.com/api/webhooks/"),
        r"\d{5,}/[\w-]{20,}",
        "discord.com/developers/docs/resources/webhook",
    ),
    TokenShape(
        "Stripe",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        r"[\w+/=]{8,}",
        "docs.stripe.com/keys",
    ),
    TokenShape("Twilio", ("SK",), r"[0-9a-f]{32}(?!\w)", "twilio.com/docs/iam/api-keys", random=False),
    TokenShape(
        "SendGrid", ("SG.",), r"[\w-]{16,32}\.[\w-]{16,64}", "twilio.com/docs/sendgrid/ui/account-and-settings/api-keys"
    ),
    TokenShape("Mailgun", ("key-",), r"[0-9a-f]{32}", "documentation.mailgun.com", random=False),
    TokenShape("npm", ("npm_",), r"[A-Za-z0-9]{30,}", "docs.npmjs.com/about-access-tokens"),
    TokenShape("PyPI", ("pypi-AgE",), rf"{_REST}{{16,}}", "pypi.org/help/#apitoken"),
    TokenShape("RubyGems", ("rubygems_",), r"[0-9a-f]{32,}", "guides.rubygems.org/api-key-scopes"),
    TokenShape("Docker Hub", ("dckr_pat_", "dckr_oat_"), rf"{_REST}{{20,}}", "docs.docker.com/security/access-tokens"),
    TokenShape(
        "DigitalOcean",
        ("dop_v1_", "doo_v1_", "dor_v1_"),
        r"[0-9a-f]{32,}",
        "docs.digitalocean.com/reference/api/create-personal-access-token",
    ),
    TokenShape("Databricks", ("dapi",), r"[0-9a-f]{32}(?:-\d+)?", "docs.databricks.com/dev-tools/auth/pat"),
    TokenShape(
        "HashiCorp Vault",
        ("hvs.", "hvb.", "hvr."),
        rf"{_REST}{{20,}}",
        "developer.hashicorp.com/vault/docs/concepts/tokens",
    ),
    TokenShape("Doppler", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa."), r"[\w.-]{20,}", "docs.doppler.com"),
    TokenShape("Pulumi", ("pul-",), r"[0-9a-f]{32,}", "pulumi.com/docs/pulumi-cloud/access-management/access-tokens"),
    TokenShape("age", ("AGE-SECRET-KEY-1",), r"[0-9A-Z]{40,}", "c2sp.org/age", random=False),
    TokenShape("Shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9A-Fa-f]{32}", "shopify.dev/docs/apps/auth"),
    TokenShape("Square", ("sq0atp-", "sq0csp-"), rf"{_REST}{{20,}}", "developer.squareup.com/docs"),
    TokenShape("Sentry", ("sntrys_", "sntryu_"), r"[\w+/=-]{20,}", "docs.sentry.io/account/auth-tokens"),
    TokenShape("Grafana", ("glsa_", "glc_"), r"[\w+/=-]{20,}", "grafana.com/docs/grafana/latest/administration"),
    TokenShape("New Relic", ("NRAK-",), r"[A-Z0-9]{20,}", "docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys"),
    TokenShape("Linear", ("lin_api_", "lin_oauth_"), r"[A-Za-z0-9]{32,}", "linear.app/developers"),
    TokenShape("Notion", ("ntn_", "secret_"), r"[A-Za-z0-9]{40,}", "developers.notion.com/docs/authorization"),
    TokenShape("Postman", ("PMAK-",), r"[0-9a-f]{24}-[0-9a-f]{20,}", "learning.postman.com/docs"),
    TokenShape("Figma", ("figd_",), rf"{_REST}{{20,}}", "figma.com/developers/api"),
    TokenShape("Supabase", ("sbp_", "sb_secret_"), rf"{_REST}{{20,}}", "supabase.com/docs/guides/api/api-keys"),
    TokenShape("PlanetScale", ("pscale_tkn_", "pscale_pw_"), r"[\w.-]{20,}", "planetscale.com/docs"),
    TokenShape("Tailscale", ("tskey-",), rf"{_REST}{{16,}}", "tailscale.com/kb/1277/key-prefixes"),
    TokenShape("Fly.io", ("fm2_", "fo1_"), r"[\w+/=-]{30,}", "fly.io/docs/security/tokens"),
    TokenShape("Heroku", ("HRKU-",), rf"{_REST}{{30,}}", _REGISTER),
    TokenShape("Atlassian", ("ATATT3", "ATCTT3"), r"[\w=-]{20,}", _REGISTER),
    TokenShape("Dynatrace", ("dt0c01.",), r"[A-Z0-9]{20,}\.[A-Z0-9]{40,}", "docs.dynatrace.com", random=False),
)


REDACTED = "[redacted]"

WINDOW_CHARS = 262_144
"""Characters that one search reads; a regular expression blocks every other thread while it runs."""

_OVERLAP_CHARS = 65_536  # longer than any secret but a private key, which is read on


@dataclass(frozen=True, eq=False)
class Rule:
    """A pattern for secrets.

    Attributes:
        expression: The pattern. Its group `secret` is replaced if it has one, else the whole match.
        literals: In lower case; every match contains one. The empty literal occurs in every text.
        accepts: Whether a match is a secret; None accepts every match.
    """

    expression: str | re.Pattern[str]
    literals: tuple[bytes, ...]
    accepts: Callable[[str], bool] | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled on first use, since few texts ever contain one of the literals."""
        return re.compile(self.expression)

    def spans(self, text: str) -> Iterator[Span]:
        """The secrets in a text, in order. Searches in windows; a match at the end of its window is read on."""
        pattern, position = self.pattern, 0
        for window in range(0, len(text), WINDOW_CHARS):
            end = min(window + WINDOW_CHARS + _OVERLAP_CHARS, len(text))
            while position < end and (match := pattern.search(text, max(position, window), end)):
                if match.end() == end < len(text):
                    match = pattern.match(text, match.start()) or match
                position = max(match.end(), match.start() + 1)
                begin, finish = match.span("secret" if "secret" in pattern.groupindex else 0)
                if self.accepts is None or self.accepts(text[begin:finish]):
                    yield begin, finish, REDACTED


def _has_digit_or_length(text: str) -> bool:
    return len(text) >= 16 or any(map(str.isdigit, text))  # noqa: PLR2004 - "bearer of news" is no credential


def _rule(expression: str, *literals: str, accepts: Callable[[str], bool] | None = None) -> Rule:
    return Rule(expression, tuple(literal.encode() for literal in literals), accepts)


# Sources: RFC 7468 and PuTTY's appendix C (private keys), 7519 and 7516 (tokens), 3986 (URLs), 6750 and 7617 (bearer,
# basic); curl(1), netrc(5); Telegram's and Discord's developer pages; the pages in `TOKEN_SHAPES`.
SHAPE_RULES = (
    _rule(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
        "private key",
    ),
    _rule(r"Private-Lines: \d{1,4}[\r\n\\rn]{1,6}(?P<secret>[A-Za-z0-9+/=\r\n\\]+)", "private-lines"),
    _rule(r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+){1,4}", "eyj", accepts=lambda t: "." in t),
    _rule(r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,}", ":aa"),
    _rule(r"[MNO](?<![\w-][MNO])[\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", ".", accepts=_looks_random),
    _rule(r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}", ".atlasv1."),
    _rule(r"(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?!\w)", "-us"),
    *(
        _rule(shape.expression(), *map(str.lower, shape.prefixes), accepts=_looks_random if shape.random else None)
        for shape in TOKEN_SHAPES
    ),
)
"""What its shape alone gives away, whatever stands around it."""

RULES = (
    *SHAPE_RULES,
    _rule(r"://(?P<secret>[^\s/?#\"'<>\\@]*+(?:@[^\s/?#\"'<>\\@]*+)*)@", "://"),
    _rule(r"://(?P<secret>[^\s/?#\"'<>:@]{0,100}:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,128}+)@(?=[\w.-]+[:/?#])", "://"),
    _rule(r"(?i)bearer(?<![a-z0-9]bearer)\s{1,9}(?P<secret>[\w.~+/=-]{6,}+)", "bearer", accepts=_has_digit_or_length),
    _rule(
        r"(?i)basic(?<![a-z0-9]basic)\s{1,9}(?P<secret>[A-Za-z0-9+/_-]{6,}+={0,2})",
        "basic",
        accepts=lambda text: text.endswith("=") or (_looks_random(text) and any(map(str.isdigit, text))),
    ),
    _rule(r"(?i)[?&](?:key|auth|pass|code)=(?P<secret>[^&#\s\"']+)", "key=", "auth=", "pass=", "code="),
    _rule(
        r"(?:-u|--user|--proxy-user)(?<![\w-](?:-u))(?:[ =]|\s?[\"'])[\"']?[^\s:\"']{0,100}+:(?!\d{1,9}(?!\S))"
        r"(?P<secret>[^\s\"']+)",
        "-u",
    ),
    _rule(r"\blogin\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(?P<secret>\S+)", "login"),
)
