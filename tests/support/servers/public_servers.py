"""Public MCP servers of npm and PyPI whose tools the tests know, and what each needs to list them.

Credentials are placeholders: a server gets those without which it would not start, and nobody calls a tool.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Registry(StrEnum):
    """Where a package is published."""

    NPM = "npm"
    PYPI = "pypi"


@dataclass(frozen=True, slots=True)
class PublicServer:
    """A server and how it is started.

    Attributes:
        name: what the tests call it.
        command: the program that the package installs; empty for the one that fits best.
        args: `/tmp` is the sandbox's own, and empty.
    """

    name: str
    registry: Registry
    package: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    command: str = ""


def server_named(spec: str) -> PublicServer:
    """The server of a catalogue's name or of a `npm:…` or `pypi:…` package, which may be in no catalogue.

    Raises:
        ValueError: it is neither.
    """
    for server in PUBLIC_SERVERS:
        if spec in {server.name, f"{server.registry}:{server.package}"}:
            return server
    registry, found, package = spec.partition(":")
    if not found or registry not in {*Registry}:
        raise ValueError(f"{spec} is no server that we know; name a package as npm:NAME or pypi:NAME")
    return PublicServer(package.strip("@").replace("/", "-"), Registry(registry), package)


def _npm(name: str, package: str, *args: str, command: str = "", **env: str) -> PublicServer:
    return PublicServer(name, Registry.NPM, package, args, env, command)


def _pypi(name: str, package: str, *args: str) -> PublicServer:
    return PublicServer(name, Registry.PYPI, package, args)


_KEY: Final = "placeholder-0123456789abcdef"

PUBLIC_SERVERS: Final = (
    _npm("everything", "@modelcontextprotocol/server-everything"),
    _npm("filesystem", "@modelcontextprotocol/server-filesystem", "/tmp"),
    _npm("memory", "@modelcontextprotocol/server-memory"),
    _npm("sequential-thinking", "@modelcontextprotocol/server-sequential-thinking"),
    _npm("github", "@modelcontextprotocol/server-github", GITHUB_PERSONAL_ACCESS_TOKEN=_KEY),
    _npm("gitlab", "@modelcontextprotocol/server-gitlab", GITLAB_PERSONAL_ACCESS_TOKEN=_KEY),
    _npm("gitlab-zereight", "@zereight/mcp-gitlab", GITLAB_PERSONAL_ACCESS_TOKEN=_KEY),
    _npm("google-maps", "@modelcontextprotocol/server-google-maps", GOOGLE_MAPS_API_KEY=_KEY),
    _npm("postgres", "@modelcontextprotocol/server-postgres", "postgresql://u:p@127.0.0.1:9/d"),
    _npm("puppeteer", "@modelcontextprotocol/server-puppeteer"),
    _npm("slack", "@modelcontextprotocol/server-slack", SLACK_BOT_TOKEN="xoxb-0", SLACK_TEAM_ID="T0"),
    _npm("brave-search-old", "@modelcontextprotocol/server-brave-search", BRAVE_API_KEY=_KEY),
    _npm("brave-search", "@brave/brave-search-mcp-server", "--transport", "stdio", BRAVE_API_KEY=_KEY),
    _npm("everart", "@modelcontextprotocol/server-everart", EVERART_API_KEY=_KEY),
    _npm("playwright", "@playwright/mcp"),
    _npm("chrome-devtools", "chrome-devtools-mcp"),
    _npm("context7", "@upstash/context7-mcp"),
    _npm("notion", "@notionhq/notion-mcp-server", NOTION_TOKEN="ntn_0"),
    _npm("firecrawl", "firecrawl-mcp", FIRECRAWL_API_KEY="fc-0123456789"),
    _npm("tavily", "tavily-mcp", TAVILY_API_KEY="tvly-0123456789"),
    _npm("exa", "exa-mcp-server", EXA_API_KEY=_KEY),
    _npm("sentry", "@sentry/mcp-server", "--access-token=sntryu_0", EMBEDDED_AGENT_PROVIDER="openai"),
    _npm("figma", "figma-developer-mcp", "--figma-api-key=0", "--stdio"),
    _npm("desktop-commander", "@wonderwhy-er/desktop-commander"),
    _npm("airtable", "airtable-mcp-server", AIRTABLE_API_KEY="pat0.0"),
    _npm("mongodb", "mongodb-mcp-server", "--connectionString", "mongodb://127.0.0.1:9/d"),
    _npm("elasticsearch", "@elastic/mcp-server-elasticsearch", ES_URL="http://127.0.0.1:9", ES_API_KEY=_KEY),
    _npm("azure", "@azure/mcp", "server", "start"),
    _npm("kubernetes", "mcp-server-kubernetes"),
    _npm("hubspot", "@hubspot/mcp-server", PRIVATE_APP_ACCESS_TOKEN="pat-0"),
    _npm("shopify-dev", "@shopify/dev-mcp"),
    _npm("neon", "@neondatabase/mcp-server-neon", "start", _KEY),
    _npm("cloudflare", "@cloudflare/mcp-server-cloudflare", "run", "0", CLOUDFLARE_API_TOKEN=_KEY),
    _npm("linear", "linear-mcp-server", LINEAR_API_KEY=_KEY),
    _npm("jira", "@aashari/mcp-server-atlassian-jira"),
    _npm("bitbucket", "@aashari/mcp-server-atlassian-bitbucket"),
    _npm("mapbox", "@mapbox/mcp-server", MAPBOX_ACCESS_TOKEN="pk.eyJ1IjoidSJ9.0"),
    _npm("eslint", "@eslint/mcp"),
    _npm("n8n", "n8n-mcp", MCP_MODE="stdio"),
    _npm("taskmaster", "task-master-ai"),
    _npm("duckduckgo", "duckduckgo-mcp-server"),
    _npm("mobile", "@mobilenext/mobile-mcp"),
    _npm("xcodebuild", "xcodebuildmcp", "mcp"),
    _npm("square", "square-mcp-server", "start", ACCESS_TOKEN=_KEY, SANDBOX="true"),
    _npm("twilio", "@twilio-alpha/mcp", "AC00000000000000000000000000000000/SK00000000000000000000000000000000:0"),
    _npm("pinecone", "@pinecone-database/mcp", PINECONE_API_KEY="pcsk_0"),
    _npm("hyperbrowser", "hyperbrowser-mcp", HYPERBROWSER_API_KEY=_KEY),
    _npm("git-cyanheads", "@cyanheads/git-mcp-server", MCP_TRANSPORT_TYPE="stdio"),
    _npm("angular", "@angular/cli", "mcp", command="ng"),
    _npm("nx", "nx-mcp", "/tmp"),
    _npm("mui", "@mui/mcp"),
    _npm("shadcn", "shadcn", "mcp"),
    _npm("postman", "@postman/postman-mcp-server", "--full", POSTMAN_API_KEY="PMAK-0"),
    _npm("netlify", "@netlify/mcp"),
    _npm("monday", "@mondaydotcomorg/monday-api-mcp", "-t", _KEY),
    _npm("antv-chart", "@antv/mcp-server-chart"),
    _npm("amap", "@amap/amap-maps-mcp-server", AMAP_MAPS_API_KEY=_KEY),
    _npm("dart-tasks", "dart-mcp-server", DART_TOKEN=_KEY),
    _pypi("time", "mcp-server-time"),
    _pypi("git", "mcp-server-git"),
    _pypi("fetch", "mcp-server-fetch"),
    _pypi("excel", "excel-mcp-server", "stdio"),
    _pypi("word", "office-word-mcp-server"),
    _pypi("aws-docs", "awslabs.aws-documentation-mcp-server"),
)
"""Those that installed and listed, each named once."""
