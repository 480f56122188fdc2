"""The MCP gateway: other servers' tools with large results behind previews.

Needs the extra `mcp`.
"""

from typing import TYPE_CHECKING

from llm_common._lazy import lazy_exports

if TYPE_CHECKING:
    from llm_common.apps.gateway.gateway import Gateway as Gateway
    from llm_common.apps.gateway.gateway_config import (
        GatewayConfig as GatewayConfig,
        ServerConfig as ServerConfig,
        ToolRules as ToolRules,
    )
    from llm_common.apps.gateway.python_tools import mcp_tools as mcp_tools

__getattr__, __all__ = lazy_exports(__name__)
