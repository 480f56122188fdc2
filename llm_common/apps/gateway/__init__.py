"""The MCP gateway: other servers' tools with large results behind previews.

Needs the extra `mcp`.
"""

from llm_common.apps.gateway.gateway import Gateway
from llm_common.apps.gateway.gateway_config import GatewayConfig, ServerConfig, ToolRules
from llm_common.apps.gateway.python_tools import mcp_tools

__all__ = ["Gateway", "GatewayConfig", "ServerConfig", "ToolRules", "mcp_tools"]
