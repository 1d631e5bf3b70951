"""Server-sent events from raw bytes, whatever pieces they arrive in and however long a line is."""

from __future__ import annotations

from collections.abc import Iterator


class EventSplitter:
    """Feed bytes, get the `data` of every event that they complete.

    Lines end in LF or CRLF, a blank line ends an event, several `data:` lines are joined by LF, comments and other
    fields are skipped (https://html.spec.whatwg.org/multipage/server-sent-events.html). An event that the stream's end
    cuts off is never given out.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # no LF before this index: a long line is not searched again with every piece
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._buffer += piece
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            line = bytes(self._buffer[start:end]).removesuffix(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                event, self._data = b"\n".join(self._data), []
                yield event
        del self._buffer[:start]
        self._searched = len(self._buffer)
