"""Serve the tools of MCP servers, with previews instead of large results.

This package needs the extra `mcp`.
"""

from llm_common.apps.gateway.configuration.gateway_config import (
    GatewayConfig,
    ServerConfig,
    ToolRules,
)
from llm_common.apps.gateway.gateway import Gateway
from llm_common.apps.gateway.python_tools import mcp_tools

__all__ = ["Gateway", "GatewayConfig", "ServerConfig", "ToolRules", "mcp_tools"]
