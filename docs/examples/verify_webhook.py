"""Tells whether a post is inboxd's own: signed with the secret, and not older than five minutes."""

import base64
import hashlib
import hmac
import time


def is_genuine(secret, headers, body, now=None):
    """`secret` begins with whsec_; `headers` have lower-case names; `body` is the bytes that came."""
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs((now or time.time()) - int(timestamp)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = [part.removeprefix("v1,") for part in headers["webhook-signature"].split() if part.startswith("v1,")]
    return any(hmac.compare_digest(expected, one) for one in given)
