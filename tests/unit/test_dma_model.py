# SPDX-License-Identifier: Apache-2.0
"""A queue against a model of it: random reads, writes, parts and batches."""

import contextlib

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.dma import pattern, rig

import dgkit
from dgkit import WC_DTYPE, WR_DTYPE, FaultRule

SIZE = 512
places = st.integers(0, SIZE + 20)
lengths = st.integers(0, 80)


class QueueModel(RuleBasedStateMachine):
    """Random reads, writes, rows, parts and batches, against two bytearrays."""

    provider = "soft"
    faults = ()

    @initialize(path=st.sampled_from(["auto", "worker"]), depth=st.sampled_from([1, 3, 16]))
    def start(self, path, depth):
        self.stack = contextlib.ExitStack()
        opened = rig(self.provider, size=SIZE, path=path, depth=depth, rules=self.faults)
        self.r = self.stack.enter_context(opened)
        self.r.local_bytes[:], self.r.remote_bytes[:] = pattern(SIZE), pattern(SIZE, 2)
        self.local_bytes, self.remote_bytes = (
            bytearray(self.r.local_bytes),
            bytearray(self.r.remote_bytes),
        )

    def move(self, write, here, there, size):
        if write:
            self.remote_bytes[there : there + size] = self.local_bytes[here : here + size]
        else:
            self.local_bytes[here : here + size] = self.remote_bytes[there : there + size]

    def check(self):
        assert self.r.local_bytes == self.local_bytes
        assert self.r.remote_bytes == self.remote_bytes
        assert self.r.queue.pending == 0

    @rule(write=st.booleans(), here=places, there=places, size=lengths, fence=st.booleans())
    def one(self, write, here, there, size, fence):
        post = self.r.queue.write if write else self.r.queue.read
        shape = {"size": size, "local_offset": here, "remote_offset": there, "fence": fence}
        if size == 0 or max(here, there) + size > SIZE:
            with pytest.raises(ValueError, match=r"0 bytes|exceeds its size"):
                post(*self.r.pair, **shape)
        else:
            assert post(*self.r.pair, **shape).wait(5).size == size
            self.move(write, here, there, size)
        self.check()

    @rule(moves=st.lists(st.tuples(st.booleans(), places, places, lengths), max_size=6))
    def batch(self, moves):
        batch = np.zeros(len(moves), WR_DTYPE)
        for record, (write, here, there, size) in zip(batch, moves, strict=True):
            record["local"], record["remote"], record["op"] = (
                self.r.local.id,
                self.r.remote.id,
                write,
            )
            record["local_offset"], record["remote_offset"], record["size"] = here, there, size
        batch["flags"] = 1  # a fence each: the model has an order
        out = np.zeros(len(moves), WC_DTYPE)
        good = all(size and max(a, b) + size <= SIZE for _, a, b, size in moves)
        if good and len(moves) <= self.r.queue.depth:
            assert self.r.queue.run(batch, out) == len(moves)
            for one in moves:
                self.move(*one)
        else:
            with pytest.raises((ValueError, dgkit.QueueFull)):
                self.r.queue.run(batch, out)
        self.check()

    @rule(write=st.booleans(), parts=st.lists(st.tuples(places, st.integers(1, 40)), max_size=4))
    def parts(self, write, parts):
        segments = [(self.r.local, at, size) for at, size in parts]
        good = parts and all(at + size <= SIZE for at, size in parts)
        try:
            if write:
                self.r.queue.gather(segments, self.r.remote).wait(5)
            else:
                self.r.queue.scatter(self.r.remote, segments).wait(5)
        except (ValueError, dgkit.QueueFull):
            assert not good or len(parts) > self.r.queue.depth
        else:
            there = 0
            for here, size in parts:
                self.move(write, here, there, size)
                there += size
        self.check()

    @rule(size=st.integers(1, 20))
    def dropped(self, size):
        self.r.queue.write(*self.r.pair, size=size)
        self.move(True, 0, 0, size)
        # Of a depth of 1 the dropped one may still hold the place.
        with contextlib.suppress(dgkit.QueueFull):
            self.r.queue.read(*self.r.pair, size=1, remote_offset=0, fence=True).wait(5)
            self.move(False, 0, 0, 1)
        while self.r.queue.pending:
            self.r.queue.poll(np.zeros(1, WC_DTYPE), timeout=0.01)

    def teardown(self):
        if hasattr(self, "local_bytes"):
            self.check()
            self.stack.close()


class FaultModel(QueueModel):
    provider = "fault"
    faults = (FaultRule("delay", every=5, delay_us=50), FaultRule("reorder", every=3))


SETTINGS = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSoftIsItsModel = QueueModel.TestCase
TestSoftIsItsModel.settings = SETTINGS
TestFaultIsItsModel = FaultModel.TestCase
TestFaultIsItsModel.settings = SETTINGS
