"""oidc-provider-mock at a port of this machine, by orders on stdin, one JSON object a line, each answered by one line.

{"token": AUDIENCE}          a token of the provider by its code flow, for a client of that name
{"forge": AUDIENCE}          the same claims, signed by authlib with another key under the provider's key id
{"stop": true}, {"start": true}
"""
import json
import sys
import threading
import urllib.parse
import urllib.request
from datetime import timedelta

import werkzeug.serving
from authlib.jose import JsonWebKey, jwt
from oidc_provider_mock import app

PORT, SECONDS = int(sys.argv[1]), float(sys.argv[2])
ISSUER = f"http://localhost:{PORT}"
APP = app(access_token_max_age=timedelta(seconds=SECONDS))
OTHER = JsonWebKey.generate_key("RSA", 2048, is_private=True)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def post(path, query, form):
    url = ISSUER + path + ("?" + urllib.parse.urlencode(query) if query else "")
    opener = urllib.request.build_opener(NoRedirect)
    try:
        return opener.open(url, urllib.parse.urlencode(form).encode(), 20)
    except urllib.error.HTTPError as answer:
        if answer.code != 302:
            raise
        return answer


def token(audience):
    client = {"client_id": audience, "redirect_uri": "http://localhost/back"}
    answer = post("/oauth2/authorize", {**client, "response_type": "code", "scope": "openid"}, {"sub": "worker@example"})
    code = urllib.parse.parse_qs(urllib.parse.urlparse(answer.headers["Location"]).query)["code"][0]
    answer = post("/oauth2/token", {}, {**client, "client_secret": "any", "grant_type": "authorization_code", "code": code})
    return json.load(answer)["id_token"]


def key_id():
    with urllib.request.urlopen(ISSUER + "/jwks", timeout=20) as answer:
        return json.load(answer)["keys"][0].get("kid")


def forge(audience):
    import base64
    part = token(audience).split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    head = {"alg": "RS256", **({"kid": key_id()} if key_id() else {})}
    return jwt.encode(head, claims, OTHER).decode()


def start():
    server = werkzeug.serving.make_server("localhost", PORT, APP, threaded=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def main():
    server = start()
    print(json.dumps(ISSUER), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        answer = True
        if "token" in order:
            answer = token(order["token"])
        elif "forge" in order:
            answer = forge(order["forge"])
        elif "stop" in order:
            server.shutdown()
            server.server_close()
        elif "start" in order:
            server = start()
        print(json.dumps(answer), flush=True)


main()
