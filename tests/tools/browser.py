# SPDX-License-Identifier: BSD-2-Clause
"""A headless Chromium, driven over its DevTools by WebSocket (RFC 6455), with the standard library alone."""
import base64
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars "
    "--remote-debugging-port=0"
).split()
START_S = 60.0


def missing():
    """Why there is no browser, or None."""
    return None if shutil.which("chromium") else "chromium is not installed (see CONTRIBUTING)"


class WebSocket:
    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        self.buffer = self.buffer.split(b"\r\n\r\n", 1)[1]

    def _more(self):
        if not (data := self.socket.recv(1 << 20)):
            raise ConnectionError("the browser has gone")
        self.buffer += data

    def _take(self, n):
        while len(self.buffer) < n:
            self._more()
        taken, self.buffer = self.buffer[:n], self.buffer[n:]
        return taken

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        n = len(data)
        long = b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
        length = bytes([0x80 | n]) if n < 126 else long
        masked = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
        self.socket.sendall(b"\x81" + length + mask + masked)

    def receive(self):
        message = b""
        while True:
            first, second = self._take(2)
            n = second & 127
            n = struct.unpack(">H", self._take(2))[0] if n == 126 else n
            n = struct.unpack(">Q", self._take(8))[0] if n == 127 else n
            message += self._take(n)
            if first & 0x80:
                return message.decode()


class Browser:
    """One page. Requests that it made are in `requests`, what it complained of in `complaints`."""

    def __init__(self, process, port, size):
        self.process, self.count, self.requests, self.complaints = process, 0, [], []
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=START_S) as answer:
            page = next(p for p in json.load(answer) if p["type"] == "page")
        self.web = WebSocket(port, page["webSocketDebuggerUrl"].split(str(port), 1)[1])
        for domain in "Page", "Runtime", "Network", "Log":
            self.call(f"{domain}.enable")
        self.resize(*size)

    def call(self, method, **params):
        self.count += 1
        number = self.count
        self.web.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.web.receive())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message):
        method, params = message.get("method"), message.get("params")
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def dark(self, is_dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, path):
        self.call("Page.navigate", url="file://" + path)
        self.wait("document.body && document.body.dataset.ready === 'yes'")

    def get(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, limit_s=60.0):
        end = time.monotonic() + limit_s
        while not self.get(f"Boolean({expression})"):
            if self.complaints or time.monotonic() > end:
                raise TimeoutError(f"{expression} does not become true: {self.complaints}")
            time.sleep(0.02)

    def settle(self):
        """What is drawn at the next frame is there."""
        self.get("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def key(self, key, text=None):
        """Presses a key, by its name in KeyboardEvent.key."""
        shown = text if text is not None else key if len(key) == 1 else ""
        event = {"key": key, "text": shown, "modifiers": 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if shown else "rawKeyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text):
        for letter in text:
            self.key(letter)

    def click(self, x, y):
        for kind in "mousePressed", "mouseReleased":
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


@contextlib.contextmanager
def browser(size=(1440, 900)):
    """With a profile of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            marker, end = os.path.join(profile, "DevToolsActivePort"), time.monotonic() + START_S
            while not (os.path.exists(marker) and open(marker, encoding="ascii").read().strip()):
                if process.poll() is not None or time.monotonic() > end:
                    raise TimeoutError("chromium does not start")
                time.sleep(0.05)
            with open(marker, encoding="ascii") as file:
                port = int(file.readline())
            yield Browser(process, port, size)
        finally:
            process.terminate()
            process.wait()
