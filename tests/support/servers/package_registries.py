"""A registry of npm packages and an index of wheels, on a loopback port, with what a test publishes."""

import asyncio
import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from support.servers.web_servers import Request, WebServer, serving

SERVER = "#!/usr/bin/env node\nconsole.log(JSON.stringify(process.argv.slice(2)))\n"


@dataclass
class PackageRegistry:
    """What is published; `hangs` never answers."""

    server: WebServer | None = None
    hangs: bool = False
    answers: dict[str, bytes] = field(default_factory=dict)
    npm: dict[str, dict[str, object]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        assert self.server is not None
        return self.server.url

    def environ(self, path: str, login: str = "") -> dict[str, str]:
        """The environment of a user with this registry alone, and this PATH."""
        url = self.url.replace("http://", f"http://{login}@" if login else "http://")
        npm = {"npm_config_registry": f"{url}/npm/", "npm_config_globalconfig": "/dev/null"}
        return {"PATH": path, **npm, "UV_DEFAULT_INDEX": f"{url}/simple", "UV_NO_CONFIG": "1"} | {
            "PIP_CONFIG_FILE": "/dev/null"
        }

    def publish(
        self,
        name: str,
        version: str = "1.0.0",
        files: Mapping[str, str | bytes] | None = None,
        *,
        integrity: str = "",
        links: Mapping[str, str] | None = None,
        **package: object,
    ) -> None:
        """Publish a package of npm; `integrity` and `links` are those of a registry or a package that does harm."""
        file = {"name": name, "version": version, "license": "MIT", **package}
        content = {"package.json": json.dumps(file), "index.js": SERVER, **(files or {})}
        archive = _tarball(content, links or {})
        place = f"/npm/-/{name.replace('/', '-')}-{version}.tgz"
        self.answers[place] = archive
        digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
        dist = {"tarball": self.url + place, "integrity": integrity or f"sha512-{digest}"}
        known = self.npm.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}})
        scripts = {"hasInstallScript": True} if "scripts" in package else {}
        known["versions"][version] = {**file, "dist": dist, **scripts}  # type: ignore[index]
        known["dist-tags"] = {"latest": version}
        self.answers[f"/npm/{name}"] = json.dumps(known).encode()

    def publish_wheel(
        self,
        name: str,
        version: str = "1.0",
        files: Mapping[str, str] | None = None,
        *,
        scripts: Mapping[str, str] | None = None,
        requires: tuple[str, ...] = (),
        tag: str = "py3-none-any",
        digest: str = "",
    ) -> None:
        """Publish a wheel of PyPI; `digest` is that of an index that says another one."""
        module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n"
        entries = "".join(f"{script} = {target}\n" for script, target in (scripts or {}).items())
        content = {
            f"{module}/__init__.py": "",
            **(files or {}),
            f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {each}\n" for each in requires),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{entries}",
        }
        wheel = _wheel(content, f"{info}/RECORD")
        file = f"{module}-{version}-{tag}.whl"
        self.answers[f"/files/{file}"] = wheel
        page = self.answers.get(f"/simple/{name}/", b"<!DOCTYPE html><html><body>")
        digest = digest or hashlib.sha256(wheel).hexdigest()
        self.answers[f"/simple/{name}/"] = page + f'<a href="/files/{file}#sha256={digest}">{file}</a>\n'.encode()

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self.hangs:
            await asyncio.sleep(3600)
        body = self.answers.get(unquote(urlsplit(request.target).path))
        status = "404 Not Found" if body is None else "200 OK"
        body = b"{}" if body is None else body
        kind = "text/html" if request.target.startswith("/simple") else "application/json"
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)


@asynccontextmanager
async def package_registry() -> AsyncIterator[PackageRegistry]:
    """A registry that serves for as long as the block lasts."""
    registry = PackageRegistry()
    async with serving(registry.answer) as registry.server:
        yield registry


def _tarball(files: Mapping[str, str | bytes], links: Mapping[str, str]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in files.items():
            text = content if isinstance(content, bytes) else content.encode()
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(text), 0o644
            archive.addfile(member, io.BytesIO(text))
        for name, target in links.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return data.getvalue()


def _wheel(files: Mapping[str, str], record: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        lines = []
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content.encode())}\n")
            archive.writestr(zipfile.ZipInfo(name), content)
        archive.writestr(zipfile.ZipInfo(record), "".join((*lines, f"{record},,\n")))
    return data.getvalue()
