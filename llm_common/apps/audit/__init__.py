"""`llm-common audit`: what compactions dropped, in sessions that agents recorded."""

from llm_common.apps.audit.findings import findings_of, replay, report
from llm_common.apps.audit.transcripts import transcripts_in

__all__ = ["findings_of", "replay", "report", "transcripts_in"]
