#!/usr/bin/env python3
"""Data-parallel training over several nodes, with nothing but sockets.

Each rank draws its own part of the data and computes its own gradient. After every
step all ranks average their gradients: they send them to rank 0 at
MASTER_ADDR:MASTER_PORT, which sends the mean back. So every rank holds the same
weights at every step; at the end they compare them to the last bit.
"""
import hashlib
import os
import random
import socket
import struct
import sys
import time

DIM = 10
STEPS = 80
PATIENCE = 60  # seconds to wait for the other ranks


def receive(conn, count):
    """Read count float64 from a connection."""
    data = b""
    while len(data) < 8 * count:
        chunk = conn.recv(8 * count - len(data))
        if not chunk:
            raise ConnectionError("another rank hung up")
        data += chunk
    return list(struct.unpack(f"<{count}d", data))


def send(conn, values):
    """Write float64 values to a connection."""
    conn.sendall(struct.pack(f"<{len(values)}d", *values))


class Group:
    """All ranks of this run, joined in a star around rank 0."""

    def __init__(self, rank, size, host, port):
        self.rank, self.size, self.peers = rank, size, []
        if size == 1:
            return
        if rank == 0:
            self.listen(port)
        else:
            self.dial(host, port)

    def listen(self, port):
        """Wait for every other rank; keep them in rank order so that sums are always the same."""
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("", port))
            server.listen(self.size)
            server.settimeout(PATIENCE)
            joined = {}
            while len(joined) < self.size - 1:
                conn, _ = server.accept()
                conn.settimeout(PATIENCE)
                conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                joined[int(receive(conn, 1)[0])] = conn
        self.peers = [joined[r] for r in sorted(joined)]

    def dial(self, host, port):
        """Connect to rank 0, which may start a little later than this rank."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                conn = socket.create_connection((host, port), timeout=PATIENCE)
                break
            except OSError as err:
                if time.monotonic() > until:
                    raise ConnectionError(f"rank 0 does not answer at {host}:{port}: {err}") from err
                time.sleep(0.1)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send(conn, [float(self.rank)])
        self.peers = [conn]

    def mean(self, values):
        """Average a list over all ranks; every rank gets the same answer."""
        if self.size == 1:
            return values
        if self.rank != 0:
            send(self.peers[0], values)
            return receive(self.peers[0], len(values))
        total = list(values)
        for peer in self.peers:
            total = [a + b for a, b in zip(total, receive(peer, len(values)))]
        average = [v / self.size for v in total]
        for peer in self.peers:
            send(peer, average)
        return average

    def close(self):
        """Hang up."""
        for peer in self.peers:
            peer.close()


def draw(rank, truth, count):
    """Draw this rank's part of the data; no two ranks have the same."""
    rng = random.Random(1000 + rank)
    samples = []
    for _ in range(count):
        x = [rng.gauss(0, 1) for _ in truth]
        samples.append((x, sum(w * v for w, v in zip(truth, x)) + rng.gauss(0, 0.1)))
    return samples


def main():
    rank = int(os.environ.get("NODE_RANK", "0"))
    size = int(os.environ.get("WORLD_SIZE", "1"))
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    port = int(os.environ.get("MASTER_PORT", "29500"))
    print(f"NODE_RANK={rank} WORLD_SIZE={size} MASTER_ADDR={host} MASTER_PORT={port}", flush=True)

    group = Group(rank, size, host, port)
    rng = random.Random(5)
    truth = [rng.uniform(-2, 2) for _ in range(DIM)]
    samples = draw(rank, truth, 1500)
    weights, loss = [0.0] * DIM, 0.0
    for step in range(1, STEPS + 1):
        grad, loss = [0.0] * DIM, 0.0
        for x, y in samples:
            error = sum(w * v for w, v in zip(weights, x)) - y
            loss += error * error / len(samples)
            for k, v in enumerate(x):
                grad[k] += 2 * error * v / len(samples)
        grad = group.mean(grad)
        weights = [w - 0.1 * g for w, g in zip(weights, grad)]
        if step % 10 == 0:
            print(f"rank={rank} step={step} loss={loss:.4f}", flush=True)

    # A bit of difference anywhere shows: the mean of equal numbers is that number.
    digest = hashlib.sha256(struct.pack(f"<{DIM}d", *weights)).hexdigest()[:12]
    mark = float(int(digest, 16))
    same = group.mean([mark]) == [mark]
    group.close()
    print(f"rank={rank} loss={loss:.4f} weights={digest} same_on_all_ranks={same}", flush=True)
    return 0 if same and loss < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
