"""nginx in front of the upstream: what a proxy written in C costs, measured in the same run as the limit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ir3de_lab.benchmarks.gateway.processes import Server, free_port, started, wait_for

PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log {folder}/nginx-access.log;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  keepalive_requests 1000000;
  upstream expert {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    client_max_body_size 20m;
    client_body_buffer_size 1m;
    location / {{
      proxy_pass http://expert;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[dict[str, Server]]:
    """It under its name, started; nothing where it is not installed."""
    if PROGRAM is None:
        yield {}
        return
    port, path = free_port(), folder / "nginx.conf"
    path.write_text(CONFIGURATION.format(folder=folder, upstream=upstream, port=port), encoding="utf-8")
    with started(["-p", str(folder), "-c", str(path)], measured=True, port=port, program=PROGRAM) as server:
        wait_for(server, "/counts")
        yield {"nginx": server}
