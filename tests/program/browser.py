"""A headless Chromium, driven through a pipe with its DevTools protocol; needs only Python's standard library."""
import base64
import collections
import fcntl
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LIMIT = 60  # seconds for an answer


def find_browser():
    """The path of a Chromium: $SHARDLINE_BROWSER, or one in PATH. None if there is none."""
    chosen = os.environ.get("SHARDLINE_BROWSER")
    return shutil.which(chosen) if chosen else next(filter(None, map(shutil.which, NAMES)), None)


def above_standard_files(descriptor):
    """Returns a descriptor of the same file that is neither 3 nor 4, which the browser reads and writes."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Browser:
    """One tab. `errors` lists what the console reported, and `requests` the addresses that the page requested."""

    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="shardline-browser-")
        reads, self.commands = map(above_standard_files, os.pipe())
        self.answers, writes = map(above_standard_files, os.pipe())

        def connect():
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        # No sandbox: containers often forbid it, and only pages of this project are opened.
        self.process = subprocess.Popen(
            [path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
             f"--user-data-dir={self.profile}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            preexec_fn=connect)
        os.close(reads)
        os.close(writes)
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.answers, selectors.EVENT_READ)
        self.buffer, self.last, self.session = b"", 0, None
        self.events, self.errors, self.requests = collections.Counter(), [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, end):
        """The next message from the browser."""
        while b"\0" not in self.buffer:
            if not self.ready.select(max(0, end - time.monotonic())):
                raise TimeoutError(f"the browser gave no answer in {LIMIT} s")
            received = os.read(self.answers, 1 << 16)
            if not received:
                raise RuntimeError(f"the browser has ended with {self.process.wait()}")
            self.buffer += received
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        name, values = message.get("method", ""), message.get("params", {})
        self.events[name] += 1
        if name == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"]["text"])
        elif name == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", "")) for one in values["args"]))
        elif name == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def call(self, method, **parameters):
        self.last += 1
        request = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.commands, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + LIMIT
        while True:
            message = self.message(end)
            if message.get("id") != self.last:
                self.note(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            else:
                return message["result"]

    def open(self, path, width, dark):
        """Loads a file, as a phone does if it is narrow; forgets what was noted about the page before."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=2 if width < 600 else 1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.errors, self.requests = [], []
        loaded = self.events["Page.loadEventFired"]
        failure = self.call("Page.navigate", url=path.resolve().as_uri()).get("errorText")
        if failure:
            raise RuntimeError(f"{path}: {failure}")
        end = time.monotonic() + LIMIT
        while self.events["Page.loadEventFired"] == loaded:
            self.note(self.message(end))

    def run(self, script):
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def picture(self):
        """The whole page as a PNG file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])


__all__ = ["Browser", "find_browser"]
