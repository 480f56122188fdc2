"""Describes secrets by the forms in which they are written and by the shapes of services' keys.

A shape is a few literal prefixes and a pattern for the remaining characters. A pattern runs only
where one of its literals occurs, in time linear in the text. Some secrets have no shape: an AWS
secret key, a Twilio auth token, a password. They are recognised by the name that they are assigned
to (see `assignments`).

The rule sets of secret scanners are not included. Their expressions are not linear in Python's
engine, and most of their rules need a name next to the key, which `assignments` covers for all
services. The table of shapes was compared with theirs.

Card and account numbers are kept. They authorise nothing alone, and most digits that pass their
checksum are something else. A caller can add a pattern for them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple, TypeAlias

from llm_common.redaction.secret_values import (
    BARE,
    LIKELY,
    QUOTED,
    STRONG,
    WEAK,
    compiled,
    is_basic_credentials,
    is_secret_value,
    looks_random,
)

Span: TypeAlias = tuple[int, int, str]
"""A secret in a text: its start, its end, and its replacement."""

REDACTED = "[redacted]"

WINDOW_CHARS = 262_144
"""Characters that one search reads. A regular expression holds the GIL while it runs."""

# A text with the name of a secret every 32 characters, over such a stretch, is no log and no
# configuration, but megabytes of it would keep a thread busy for seconds.
_STRETCH_CHARS = 65_536
_MAX_UNITS_IN_STRETCH = 6_144
MAX_UNITS = 4_000_000
"""The work for one result: that of the densest 40 MB, some fifteen seconds."""

NAME_UNITS = 3
"""A name of a secret with its value. A word or a part of a long value takes one unit."""
CHARS_OF_A_UNIT = 64

_KEY_LINES_BACKWARDS = r"(?:[A-Za-z0-9+/=]|\s|[nr]\\)*+"
_MIN_KEY_CHARS = 16
# Longer than any secret except a private key, and a key is read to its end.
_OVERLAP_CHARS = 65_536


class Work:
    """Counts the work for a text, or for the texts of a result one after the other.

    In units of a few microseconds and not in seconds, so that a result is redacted in the same way
    in each run and on every machine.
    """

    def __init__(self) -> None:
        self._begin = self._end = 0  # of the current text, in the characters of the result
        self._units: dict[int, int] = {}  # by the number of a stretch
        self._total = 0

    def begin_text(self, text: str) -> None:
        """Count from now on at the positions of another text of the result."""
        self._begin = self._end
        self._end += len(text)

    def is_too_much(self, position: int, units: int = 1) -> bool:
        """Count work at a position of the text, and return whether the limit is exceeded.

        The rules read a text one after the other, so the positions come in any order.
        """
        stretch = (self._begin + position) // _STRETCH_CHARS
        units_in_stretch = self._units.get(stretch, 0) + units
        self._units[stretch] = units_in_stretch
        self._total += units
        return units_in_stretch > _MAX_UNITS_IN_STRETCH or self._total > MAX_UNITS

    def is_over(self) -> bool:
        """Return whether no part of the current text can be checked any more."""
        stretch = self._begin // _STRETCH_CHARS
        is_within = self._end <= (stretch + 1) * _STRETCH_CHARS
        is_full = self._units.get(stretch, 0) > _MAX_UNITS_IN_STRETCH
        return self._total > MAX_UNITS or (is_within and is_full)

    def unchecked_end(self, text: str, position: int) -> int:
        """Return where checks may begin again after a position at which there were too many."""
        if self._total > MAX_UNITS:
            return len(text)
        stretch = (self._begin + position) // _STRETCH_CHARS
        end = (stretch + 1) * _STRETCH_CHARS - self._begin
        # To the next line that is not indented: it may be the value of a name before it.
        line_end = compiled(r"\n(?=\S)").search(text, min(end, len(text)))
        return len(text) if line_end is None else line_end.end()


def unchecked(chars: int) -> str:
    """Return what replaces characters that were not checked."""
    return f"[redacted: {chars:,} characters, too dense to be checked]"


@dataclass(frozen=True, eq=False)
class Rule:
    """A pattern for secrets.

    Attributes:
        expression: The pattern. Its group `secret` is replaced if it has one, else the whole match.
        literals: Every match contains one of them. Those of names and forms are in lower case. The
            empty literal occurs in every text.
        accepts: Tells whether a match is a secret. None accepts every match.
    """

    expression: str | re.Pattern[str]
    literals: tuple[str, ...]
    accepts: Callable[[str], bool] | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern, compiled on first use. Few texts contain one of the literals."""
        return compiled(self.expression) if isinstance(self.expression, str) else self.expression

    def may_match(self, text: str) -> bool:
        """Return whether to search a text. True for a long one, which is searched in windows."""
        # One search here spares most texts the merge of all rules' matches.
        return len(text) > WINDOW_CHARS or self.pattern.search(text) is not None

    def spans(self, text: str, work: Work) -> Iterator[Span]:
        """Yield the secrets in a text, in order, and what takes too much work to be checked."""
        pattern, position = self.pattern, 0
        for window in range(0, len(text), WINDOW_CHARS):
            end = min(window + WINDOW_CHARS + _OVERLAP_CHARS, len(text))
            while position < end and (match := pattern.search(text, max(position, window), end)):
                if match.end() == end < len(text):  # the secret may go on after the window
                    match = pattern.match(text, match.start()) or match
                position = max(match.end(), match.start() + 1)
                begin, finish = match.span("secret" if "secret" in pattern.groupindex else 0)
                if work.is_too_much(begin):
                    position = work.unchecked_end(text, finish)
                    yield begin, position, unchecked(position - begin)
                    continue
                if self.accepts is None or self.accepts(text[begin:finish]):
                    yield begin, finish, REDACTED


@dataclass(frozen=True, eq=False)
class PrivateKeyEnd(Rule):
    """Finds the end of a private key whose beginning was cut off: the lines before its last."""

    def spans(self, text: str, _work: Work) -> Iterator[Span]:
        """Yield the lines before the last line of a key, and that line."""
        position = 0
        while match := self.pattern.search(text, position):
            before = text[max(position, match.start() - _OVERLAP_CHARS) : match.start()]
            # Backwards, since a search forwards would try each line of a text as the first.
            lines = compiled(_KEY_LINES_BACKWARDS).match(before[::-1])
            position = match.end()
            if lines is not None and len(lines[0].strip()) >= _MIN_KEY_CHARS:
                yield match.start() - lines.end(), match.end(), REDACTED


def alternation(literals: Iterable[str]) -> str:
    """Return an expression for the longest of some literals.

    The engine tries the branches of an alternation in turn, so one branch for each first letter is
    four times faster.
    """
    branches: list[str] = []
    for head, group in groupby(sorted(literals, reverse=True), key=lambda literal: literal[:1]):
        endings = "|".join([re.escape(literal[1:]) for literal in group])
        branches.append(f"{re.escape(head)}(?:{endings})")
    return "|".join(branches)


class TokenShape(NamedTuple):
    """The shape of one service's keys.

    Attributes:
        name: The service.
        starts: Literal beginnings, between spaces. A letter or digit before one rules it out.
        body: Pattern of the characters after the beginning.
        source: The page on which the service, or a register, documents the shape.
        random: Whether only random text counts, because words such as `sk-container-class` match
            too.
    """

    name: str
    starts: str
    body: str
    source: str
    random: bool = True

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return the literal beginnings."""
        return tuple(self.starts.split())

    def rule(self) -> Rule:
        """Return the rule for whole keys of this shape."""
        starts: list[str] = []
        after_escape: list[str] = []  # a new line as JSON writes it, or a colour of a terminal
        for literal in map(re.escape, self.prefixes):
            # The literal comes before its lookbehind: the engine then searches for it quickly.
            starts.append(rf"{literal}(?<![A-Za-z0-9]{literal})")
            after_escape.append(rf"{literal}(?:(?<=\\[nrt]{literal})|(?<=\dm{literal}))")
        expression = rf"(?:{'|'.join(starts + after_escape)})(?:{self.body})"
        return Rule(expression, self.prefixes, _is_random_key if self.random else None)


def _is_random_key(text: str) -> bool:
    """Return whether a key with a known beginning is random, unlike `sk-container-class`."""
    return looks_random(text) or (
        any(map(str.isdigit, text)) and compiled(r"[A-Za-z0-9]{16}").search(text) is not None
    )


def _has_key_body(text: str) -> bool:
    """Return whether the first line of a private key is followed by a key, and not by code."""
    begin = text.index("-----", 1) + len("-----")
    body = text[begin : begin + 2_000].partition("-----")[0]
    if any(map(looks_random, compiled(r"[A-Za-z0-9+/=]{16,}").findall(body))):
        return True
    return compiled(r"(?s)(?=.*\d)(?:[A-Za-z0-9+/=\s]|\\[nr]){16,}").fullmatch(body) is not None


def _is_user_info(text: str) -> bool:
    """Return whether the part of a URL before `@` has a password, or a random name."""
    user, colon, password = text.partition(":")
    return is_secret_value(password, STRONG, BARE) if colon else looks_random(user)


_is_random = partial(is_secret_value, strength=WEAK)
_is_likely = partial(is_secret_value, strength=LIKELY, forms=BARE)
_is_secret = partial(is_secret_value, strength=STRONG, forms=BARE)

_KEY = r"[A-Za-z0-9]"
_REST = r"[A-Za-z0-9_-]"
_HEX = r"[0-9a-f]"
_REGISTER = (
    "docs.github.com/code-security/reference/secret-security/supported-secret-scanning-patterns"
)
_GITLAB = (
    "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glimt- glagent- glsoat- glffct- gloas- "
    "glwt- GR1348941"
)
_SLACK = "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-"
_SLACK_HOOKS = "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/"
_BASE64_OF_KEYS = (
    "c2stYW50 c2stcHJva c2stb3It c2tfbGl2Z Z2hwX Z2hvX Z2hzX Z2l0aHViX3BhdF "
    "eG94Y QUtJQ QUl6Y Z2xwYXQt"
)
_BASE64_OF_PRIVATE_KEYS = (
    "LS0tLS1CRUdJTiBSU0EgUFJJVkFUR LS0tLS1CRUdJTiBFQyBQUklWQVRF LS0tLS1CRUdJTiBQUklWQVRF "
    "LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVE LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFUR"
)

_ROWS: tuple[tuple[str, str, str, str] | tuple[str, str, str, str, bool], ...] = (
    # Models and their tools
    (
        "OpenAI, Anthropic, OpenRouter, Langfuse",
        "sk-",
        rf"{_REST}{{16,}}",
        "platform.openai.com/docs/api-reference",
    ),
    ("ElevenLabs", "sk_", rf"{_HEX}{{40,}}", "elevenlabs.io/docs/api-reference/authentication"),
    ("Groq", "gsk_", rf"{_KEY}{{32,}}", "console.groq.com/docs"),
    ("xAI", "xai-", rf"{_KEY}{{32,}}", "docs.x.ai"),
    ("Perplexity", "pplx-", rf"{_KEY}{{32,}}", "docs.perplexity.ai"),
    ("Replicate", "r8_", rf"{_KEY}{{30,}}", "replicate.com/docs/topics/security/api-tokens"),
    ("NVIDIA", "nvapi-", rf"{_REST}{{32,}}", "docs.api.nvidia.com"),
    ("Cerebras", "csk-", rf"{_KEY}{{32,}}", "inference-docs.cerebras.ai"),
    ("Together", "tgp_v1_", rf"{_REST}{{32,}}", "docs.together.ai"),
    ("Fireworks", "fw_", rf"{_KEY}{{20,}}", "docs.fireworks.ai"),
    ("Jina", "jina_", rf"{_REST}{{40,}}", "jina.ai/api-dashboard"),
    ("Voyage", "pa-", rf"{_REST}{{40,}}", "docs.voyageai.com"),
    ("LangSmith", "lsv2_", r"\w{32,}", "docs.smith.langchain.com"),
    ("Tavily", "tvly-", rf"{_REST}{{20,}}", "docs.tavily.com"),
    ("Firecrawl", "fc-", rf"{_HEX}{{32}}", "docs.firecrawl.dev"),
    ("Apify", "apify_api_", rf"{_KEY}{{30,}}", "docs.apify.com/platform/integrations/api"),
    ("E2B", "e2b_", rf"{_HEX}{{32,}}", "e2b.dev/docs/api-key"),
    ("Pinecone", "pcsk_", r"\w{30,}", "docs.pinecone.io/guides/projects/manage-api-keys"),
    ("Weights & Biases", "wandb_v1_", r"\w{30,}", "docs.wandb.ai"),
    ("Hugging Face", "hf_ api_org_", r"\w{16,}", "huggingface.co/docs/hub/security-tokens"),
    # Clouds
    (
        "Google API key",
        "AIza",
        rf"{_REST}{{30,}}",
        "cloud.google.com/docs/authentication/api-keys",
        False,
    ),
    ("Gemini", "AQ.", rf"{_REST}{{40,}}", "ai.google.dev/gemini-api/docs/api-key"),
    (
        "Google OAuth",
        "GOCSPX- ya29. 1//0",
        r"[\w.-]{20,}",
        "developers.google.com/identity/protocols",
    ),
    (
        "AWS key id",
        "AKIA ASIA ABIA ACCA A3TX",
        r"[0-9A-Z]{16}(?![A-Za-z0-9])",
        "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html",
        False,
    ),
    (
        "Bedrock",
        "ABSK bedrock-api-key-",
        r"[A-Za-z0-9+/]{30,}={0,2}",
        "docs.aws.amazon.com/bedrock/latest/userguide",
    ),
    ("Alibaba", "LTAI", rf"{_KEY}{{16,}}", "alibabacloud.com/help/en/ram"),
    ("Tencent", "AKID", rf"{_KEY}{{28,}}", "tencentcloud.com/document/product/598"),
    (
        "DigitalOcean",
        "dop_v1_ doo_v1_ dor_v1_",
        rf"{_HEX}{{32,}}",
        "docs.digitalocean.com/reference/api",
    ),
    (
        "Cloudflare origin CA",
        "v1.0-",
        rf"{_HEX}{{24}}-{_HEX}{{100,}}",
        "developers.cloudflare.com/api",
    ),
    (
        "Cloudflare",
        "cfk_ cfut_ cfat_",
        rf"{_REST}{{40,}}",
        "developers.cloudflare.com/fundamentals/api/get-started/token-formats",
    ),
    (
        "Cloudflare Turnstile",
        "0x4AAAAA",
        rf"{_REST}{{27,}}",
        "developers.cloudflare.com/turnstile/get-started",
    ),
    ("Vercel Blob", "vercel_blob_rw_", r"\w{30,}", "vercel.com/docs/vercel-blob"),
    ("Heroku", "HRKU-", rf"{_REST}{{30,}}", _REGISTER),
    ("Fly.io", "fm1a_ fm1r_ fm2_ fo1_", r"[\w+/=-]{30,}", "fly.io/docs/security/tokens"),
    ("Netlify", "nfp_", rf"{_KEY}{{30,}}", "docs.netlify.com/api"),
    ("Render", "rnd_", rf"{_KEY}{{24,}}", "render.com/docs/api"),
    ("Scalingo", "tk-us-", rf"{_REST}{{40,}}", "developers.scalingo.com"),
    ("OpenShift", "sha256~", rf"{_REST}{{40,}}", "docs.openshift.com"),
    ("Databricks", "dapi", rf"{_HEX}{{32}}(?:-\d+)?", "docs.databricks.com/dev-tools/auth/pat"),
    ("age", "AGE-SECRET-KEY-1", r"[0-9A-Z]{40,}", "c2sp.org/age", False),
    # Code, packages and their tests
    (
        "GitHub",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"\w{16,}",
        "github.blog/2021-04-05-behind-githubs-new-authentication-token-formats",
    ),
    ("GitLab", _GITLAB, r"[\w.-]{16,}", "docs.gitlab.com/security/tokens"),
    ("Bitbucket", "ATBB", rf"{_KEY}{{24,}}", _REGISTER),
    ("Atlassian", "ATATT3 ATCTT3", r"[\w=-]{20,}", _REGISTER),
    ("npm", "npm_", rf"{_KEY}{{30,}}", "docs.npmjs.com/about-access-tokens"),
    ("PyPI", "pypi-AgE", rf"{_REST}{{16,}}", "pypi.org/help/#apitoken"),
    ("RubyGems", "rubygems_", rf"{_HEX}{{32,}}", "guides.rubygems.org/api-key-scopes"),
    (
        "crates.io",
        "cio",
        rf"{_KEY}{{32}}(?!\w)",
        "doc.rust-lang.org/cargo/reference/publishing.html",
    ),
    ("NuGet", "oy2", r"[a-z0-9]{43}(?!\w)", "learn.microsoft.com/nuget"),
    ("Clojars", "CLOJARS_", rf"{_KEY}{{40,}}", "github.com/clojars/clojars-web/wiki/Deploy-Tokens"),
    ("JFrog", "AKCp cmVmd", rf"{_KEY}{{50,}}", "jfrog.com/help"),
    (
        "Docker Hub",
        "dckr_pat_ dckr_oat_",
        rf"{_REST}{{20,}}",
        "docs.docker.com/security/access-tokens",
    ),
    ("CircleCI", "CCIPAT_ CCIPRJ_", r"\w{20,}", "circleci.com/docs/managing-api-tokens"),
    ("Buildkite", "bkua_ bkct_", rf"{_KEY}{{30,}}", "buildkite.com/docs/apis/managing-api-tokens"),
    ("Snyk", "snyk_uat. snyk_sat.", r"[\w.-]{40,}", "docs.snyk.io/snyk-api/authentication-for-api"),
    ("Trigger.dev", "tr_dev_ tr_prod_ tr_pat_", rf"{_KEY}{{20,}}", "trigger.dev/docs/apikeys"),
    (
        "Inngest",
        "signkey-prod- signkey-test- signkey-branch-",
        rf"{_HEX}{{32,}}",
        "inngest.com/docs/platform/signing-keys",
    ),
    ("Sonar", "squ_ sqp_ sqa_", rf"{_HEX}{{40}}", "docs.sonarsource.com"),
    (
        "Sourcegraph",
        "sgp_",
        rf"(?:(?:{_HEX}{{16}}|local)_)?{_HEX}{{40}}",
        "sourcegraph.com/docs/cli/how-tos",
    ),
    (
        "HashiCorp Vault",
        "hvs. hvb. hvr.",
        rf"{_REST}{{20,}}",
        "developer.hashicorp.com/vault/docs/concepts/tokens",
    ),
    (
        "Doppler",
        "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.",
        r"[\w.-]{20,}",
        "docs.doppler.com",
    ),
    ("1Password", "ops_", rf"eyJ{_REST}{{40,}}", "developer.1password.com/docs/service-accounts"),
    (
        "1Password account",
        "A3-",
        r"[A-Z0-9]{6}-[A-Z0-9]{5,11}(?:-[A-Z0-9]{5,6}){3,4}",
        "support.1password.com/secret-key",
    ),
    (
        "Pulumi",
        "pul-",
        rf"{_HEX}{{32,}}",
        "pulumi.com/docs/pulumi-cloud/access-management/access-tokens",
    ),
    ("Infracost", "ico-", rf"{_KEY}{{32}}", "infracost.io/docs"),
    ("Prefect", "pnu_ pnb_", rf"{_KEY}{{30,}}", "docs.prefect.io"),
    ("Octopus", "API-", r"[A-Z0-9]{26}(?!\w)", "octopus.com/docs/octopus-rest-api"),
    ("ReadMe", "rdme_", r"[a-z0-9]{60,}", "docs.readme.com"),
    ("Harness", "pat. sat.", rf"{_REST}{{22}}\.{_KEY}{{24}}\.{_KEY}{{20}}", "developer.harness.io"),
    # Data
    ("Supabase", "sbp_ sb_secret_", rf"{_REST}{{20,}}", "supabase.com/docs/guides/api/api-keys"),
    ("PlanetScale", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.-]{20,}", "planetscale.com/docs"),
    ("Neon", "npg_ napi_", rf"{_KEY}{{12,}}", "neon.com/docs/manage/api-keys"),
    (
        "ClickHouse Cloud",
        "4b1d",
        rf"{_KEY}{{38}}(?!\w)",
        "clickhouse.com/docs/cloud/manage/openapi",
    ),
    (
        "Airtable",
        "pat",
        rf"{_KEY}{{14}}\.{_HEX}{{64}}",
        "airtable.com/developers/web/guides/personal-access-tokens",
    ),
    ("Dropbox", "sl.", rf"{_REST}{{60,}}", "developers.dropbox.com/oauth-guide"),
    (
        "Contentful",
        "CFPAT-",
        rf"{_REST}{{40,}}",
        "contentful.com/developers/docs/references/authentication",
    ),
    ("Notion", "ntn_ secret_", rf"{_KEY}{{40,}}", "developers.notion.com/docs/authorization"),
    # Messages and mail
    ("Slack", _SLACK, r"[\w%.-]{8,}", "docs.slack.dev/authentication/tokens"),
    (
        "Slack webhook",
        _SLACK_HOOKS,
        r"[\w/]{20,}",
        "docs.slack.dev/messaging/sending-messages-using-incoming-webhooks",
    ),
    (
        "Discord webhook",
        "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
        r"\d{5,}/[\w-]{20,}",
        "discord.com/developers/docs/resources/webhook",
    ),
    (
        "Teams webhook",
        "webhook.office.com/webhookb2/",
        r"[\w@/-]{40,}",
        "learn.microsoft.com/microsoftteams",
    ),
    ("Twilio", "SK", rf"{_HEX}{{32}}(?!\w)", "twilio.com/docs/iam/api-keys", False),
    (
        "SendGrid",
        "SG.",
        r"[\w-]{16,32}\.[\w-]{16,64}",
        "twilio.com/docs/sendgrid/ui/account-and-settings/api-keys",
    ),
    ("Mailgun", "key-", rf"{_HEX}{{32}}", "documentation.mailgun.com", False),
    ("Brevo", "xkeysib- xsmtpsib-", rf"{_HEX}{{64}}-{_KEY}{{16}}", "developers.brevo.com"),
    ("Resend", "re_", rf"{_KEY}{{6,}}_?{_KEY}{{16,}}", "resend.com/docs/api-reference"),
    # Payment and shops
    (
        "Stripe",
        "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_ whsec_",
        r"[\w+/=]{8,}",
        "docs.stripe.com/keys",
    ),
    ("Square", "sq0atp- sq0csp- EAAA", rf"{_REST}{{20,}}", "developer.squareup.com/docs"),
    ("Shopify", "shpat_ shpca_ shppa_ shpss_", r"[0-9A-Fa-f]{32}", "shopify.dev/docs/apps/auth"),
    (
        "Braintree, PayPal",
        "access_token$production$ access_token$sandbox$",
        r"[0-9a-z]{16}\$[0-9a-f]{32}",
        "developer.paypal.com/braintree/docs",
    ),
    ("Razorpay", "rzp_live_ rzp_test_", rf"{_KEY}{{14,}}", "razorpay.com/docs/api"),
    ("Flutterwave", "FLWSECK- FLWSECK_TEST-", r"[0-9a-z]{12,}", "developer.flutterwave.com"),
    ("EasyPost", "EZAK EZTK", rf"{_KEY}{{50,}}", "docs.easypost.com"),
    ("Shippo", "shippo_live_ shippo_test_", rf"{_HEX}{{40}}", "docs.goshippo.com"),
    ("Duffel", "duffel_live_ duffel_test_", rf"{_REST}{{30,}}", "duffel.com/docs"),
    (
        "Plaid",
        "access-production- access-development- access-sandbox-",
        rf"{_HEX}{{8}}-[0-9a-f-]{{27}}",
        "plaid.com/docs",
    ),
    ("Polar", "polar_oat_ polar_pat_", rf"{_KEY}{{30,}}", "docs.polar.sh/integrate/authentication"),
    # Monitoring, planning, design
    ("Datadog application", "ddapp_", rf"{_KEY}{{30,}}", _REGISTER),
    ("Sentry", "sntrys_ sntryu_", r"[\w+/=-]{20,}", "docs.sentry.io/account/auth-tokens"),
    ("Grafana", "glsa_ glc_", r"[\w+/=-]{20,}", "grafana.com/docs/grafana/latest/administration"),
    (
        "New Relic",
        "NRAK- NRII- NRJS-",
        rf"{_REST}{{19,}}",
        "docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys",
    ),
    ("Dynatrace", "dt0c01.", r"[A-Z0-9]{20,}\.[A-Z0-9]{40,}", "docs.dynatrace.com", False),
    ("PostHog", "phx_ phs_", rf"{_KEY}{{32,}}", "posthog.com/docs/api"),
    (
        "HubSpot",
        "pat-na1- pat-na2- pat-eu1-",
        rf"{_HEX}{{8}}-[0-9a-f-]{{27}}",
        "developers.hubspot.com/docs",
    ),
    ("Linear", "lin_api_ lin_oauth_", rf"{_KEY}{{32,}}", "linear.app/developers"),
    ("Postman", "PMAK-", rf"{_HEX}{{24}}-{_HEX}{{20,}}", "learning.postman.com/docs"),
    ("Adobe", "p8e-", rf"{_REST}{{30,}}", _REGISTER),
    ("Figma", "figd_", rf"{_REST}{{20,}}", "figma.com/developers/api"),
    ("Frame.io", "fio-u-", rf"{_REST}{{40,}}", "developer.frame.io"),
    ("Typeform", "tfp_", r"[\w.-]{40,}", "typeform.com/developers"),
    ("Tailscale", "tskey-", rf"{_REST}{{16,}}", "tailscale.com/kb/1277/key-prefixes"),
    (
        "Facebook",
        "EAA",
        rf"{_KEY}{{60,}}",
        "developers.facebook.com/docs/facebook-login/guides/access-tokens",
    ),
    # Base64 of the first characters of the keys above and of private keys, as in a Kubernetes
    # secret (RFC 4648)
    ("Base64 of a key", _BASE64_OF_KEYS, r"[A-Za-z0-9+/]{16,}={0,2}", "rfc-editor.org/rfc/rfc4648"),
    (
        "Base64 of a private key",
        _BASE64_OF_PRIVATE_KEYS,
        r"[A-Za-z0-9+/\s]{40,}={0,2}",
        "rfc-editor.org/rfc/rfc7468",
        False,
    ),
)

TOKEN_SHAPES = tuple(TokenShape(*row) for row in _ROWS)

_BEGIN_KEY = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_END_KEY = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_LOGIN_FLAGS = (
    r"\b(?:(?:docker|podman|oc|az)[\"', ]{1,4}login\b|sshpass|mongo|mongosh|mongodump)"
    r"(?=[ \"'])[^\n|;]{0,100}?"
    r"[\s\"']-p[\s\"',]{0,4}(?P<secret>[^\s\"']{3,}+)"
)

_SQL_USERS = (
    r"(?i)\b(?:"
    r"(?:(?:alter|create)\s{1,9}(?:user|role|login|group)|grant)\b[^;]{0,300}?"
    r"\b(?:password|identified(?:\s{1,9}with\s{1,9}[\w'\"`]{1,40})?\s{1,9}(?:by|as))[\s=(]{1,9}"
    r"|set\s{1,9}password\s{1,9}for\b[^;=]{1,100}=\s{0,9}(?:password\()?"
    r")e?\\{0,3}[\"'](?P<secret>[^\"'\n\\]{3,256}+)"
)

# Sources: RFC 7468 and PuTTY's appendix C (private keys), RFC 7519 and 7516 (tokens), crypt(5)
# (hashes of passwords), the developer pages of z.ai, Telegram, Discord, HashiCorp, Mailchimp,
# MaxMind, Asana, Microsoft Entra and Azure Storage, and the rows of `TOKEN_SHAPES`.
SHAPE_RULES = (
    Rule(rf"{_BEGIN_KEY}(?s:.*?)(?:{_END_KEY}|\Z)", ("PRIVATE KEY",), _has_key_body),
    PrivateKeyEnd(rf"{_END_KEY}", ("PRIVATE KEY",)),
    Rule(
        r"Private-Lines: \d{1,4}(?:\r|\n|\\[rn]){1,4}(?P<secret>[A-Za-z0-9+/=\r\n\\]{16,}+)",
        ("Private-Lines",),
    ),
    Rule(
        # A token that begins with `pk.` is Mapbox's, and public.
        r"eyJ(?<!\bpk\.eyJ)(?:(?<![A-Za-z0-9_-]eyJ)|(?<=%20eyJ)|(?<=%3DeyJ)|(?<=\\[nrt]eyJ))"
        r"[A-Za-z0-9_-]{8,}+"
        r"(?:(?:\.|%2[Ee])[A-Za-z0-9_-]*+){1,4}",
        ("eyJ",),
        lambda text: "." in text or "%2" in text,
    ),
    Rule(
        r"[0-9a-f](?<![0-9A-Za-z].)[0-9a-f]{31}\.[A-Za-z0-9]{16}(?![A-Za-z0-9])",
        (".",),
        looks_random,
    ),
    Rule(r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{32,}", (":AA",)),
    Rule(r"[MNO](?<![\w-][MNO])[\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", (".",), looks_random),
    Rule(r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}", (".atlasv1.",)),
    Rule(r"(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?!\w)", ("-us",)),
    Rule(r"(?<!\w)[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?!\w)", ("_mmk",)),
    Rule(r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])", ("Q~",)),
    # Not the digest of a package or a script, which begins with `sha512-`.
    Rule(r"(?<![A-Za-z0-9+/])(?<!sha512-)[A-Za-z0-9+/]{86}==", ("==",), looks_random),
    Rule(r"(?<![\w/])[12]/\d{10,20}(?:/\d{10,20})?:[0-9a-f]{32}(?!\w)", ("1/", "2/")),
    Rule(
        r"\$(?:1|2[abxy]|5|6|7|y|apr1|argon2id?|scrypt)\$[\w./+=,$-]{20,}",
        ("$1$", "$2", "$5$", "$6$", "$7$", "$y$", "$apr1$", "$argon2", "$scrypt$"),
    ),
    *[shape.rule() for shape in TOKEN_SHAPES],
)
"""Rules for keys that have a shape. Every match has 16 characters without a space."""

# Sources: RFC 3986 (URLs), 6750 and 7617 (bearer, basic); curl(1), netrc(5), the PostgreSQL manual
# (.pgpass), openssl-passphrase-options(1), the manuals of PostgreSQL, MySQL, Oracle and SQL Server
# (CREATE USER, ALTER ROLE, GRANT, SET PASSWORD), and those of the commands.
FORM_RULES = (
    Rule(r"://(?P<secret>[^\s/?#\"'<>\\@]*+(?:@[^\s/?#\"'<>\\@]*+)*)@", ("://",), _is_user_info),
    Rule(
        r"://(?P<secret>[^\s/?#\"'<>:@]{0,100}:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,128}+)@"
        r"(?=[\w.-]+[:/?#])",
        ("://",),
        _is_user_info,
    ),
    Rule(
        r"(?i)bearer(?<![a-z0-9]bearer)\s{1,9}(?P<secret>[\w.~+/=-]{6,}+)", ("bearer",), _is_random
    ),
    Rule(
        r"(?i)basic(?<![a-z0-9]basic)\s{1,9}(?P<secret>[A-Za-z0-9+/_-]{6,}+={0,2})",
        ("basic",),
        is_basic_credentials,
    ),
    Rule(r"(?i)[?&](?:key|auth|pass|code)=(?P<secret>[^&#\s\"']+)", ("?", "&"), _is_random),
    # In an address, even a short token is one.
    Rule(
        r"(?i)[?&](?:(?:access|api|auth|id|refresh|session)[_-]?)?token=(?P<secret>[^&#\s\"'<>]+)",
        ("token=",),
        _is_likely,
    ),
    Rule(
        r"(?:-b|--cookie)(?<![\w-]-b)[ =]\\{0,3}[\"']?(?P<secret>[\w.-]{1,64}=[^\s\"'\\]+)",
        ("-b", "--cookie"),
        _is_random,
    ),
    Rule(
        r"(?i)ConvertTo-SecureString\s{1,9}(?:-String\s{1,9})?(?P<secret>[^\s\"']{4,}|"
        r"\"[^\"\n]{4,256}\"|'[^'\n]{4,256}')",
        ("convertto-securestring",),
        lambda text: is_secret_value(text.strip("\"'"), STRONG, QUOTED),
    ),
    Rule(
        r"(?i)\bpass(?:word|wort|phrase|code)\s(?:is|ist|lautet)[: ]\s?(?P<secret>\S+)",
        ("pass",),
        _is_random,
    ),
    Rule(
        r"(?:-u|--user|--proxy-user)(?<![\w-]-u)"
        r"(?:[ =]|\\{0,3}[\"'],\s?|\s?(?=\\{0,3}[\"']))\\{0,3}[\"']?"
        r"[^\s:\"'\\]{0,100}+:(?P<secret>[^\s\"'\\]+)",
        ("-u",),
        _is_likely,
    ),
    Rule(r"\blogin\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(?P<secret>\S+)", ("login",), _is_secret),
    Rule(_LOGIN_FLAGS, ("login", "sshpass", "mongo"), _is_secret),
    Rule(
        r"\b(?:mysql|mariadb|mysqldump|mysqladmin)\b[^\n|;]{0,100}?\s-p(?P<secret>[^\s\"']{4,}+)",
        ("mysql", "mariadb"),
    ),
    Rule(
        r"\bredis-cli\b[^\n|;]{0,100}?\s(?:-a|--pass)\s{1,9}(?P<secret>[^\s\"']{4,}+)",
        ("redis-cli",),
    ),
    Rule(
        _SQL_USERS,
        ("password", "identified"),
        partial(is_secret_value, strength=STRONG, forms=QUOTED),
    ),
    # Not after a comma, as in addresses of India, whose postal codes are called PIN too.
    Rule(
        r"(?:[Pp]in|PIN)(?<![\w-]...)(?<!, ...)(?:\s?[:=]|(?<=PIN)\sis)\s{0,2}"
        r"(?P<secret>\d{4,8})(?![\w-]|[.,]\d)",
        ("pin",),
    ),
    Rule(r"(?<=[\s\"'])pass:(?P<secret>[^\s\"']{4,}+)", ("pass:",), _is_secret),
    Rule(
        r"(?<![\w.*-])[\w.*-]{1,253}:(?:\d{4,5}|\*):[\w.*-]{1,63}:[\w.@*-]{1,63}:"
        r"(?P<secret>[^\s\"'&\\]{4,256})",
        (":5432:", ":*:"),
        _is_secret,
    ),
)
