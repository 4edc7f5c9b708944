"""Stands in for Neutron: there is a network, and no server has a port on it.

Nova asks it for the ports of servers that were made with "networks": "none".
"""

import http.server
import json
import sys
import urllib.parse

ANSWERS = {
    "ports": [],
    "networks": [{"id": "4f1a7c02-5d0e-4b61-9e1f-0c7a52b0a6d3", "name": "lab-net", "status": "ACTIVE", "subnets": [],
                  "admin_state_up": True, "shared": True, "tenant_id": "lab"}],
    "security-groups": [],
    "extensions": [],
    "floatingips": [],
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        name = url.path.rstrip("/").rsplit("/", 1)[-1].removesuffix(".json")
        rows = ANSWERS.get(name)
        if rows is None:
            return self.answer(404, {"NeutronError": {"message": "not in this stub: " + self.path}})
        query = urllib.parse.parse_qs(url.query)
        for key in ("name", "id"):
            if key in query:
                rows = [r for r in rows if r[key] in query[key]]
        return self.answer(200, {name.replace("-", "_"): rows})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
