"""A program of many kinds of calls: methods, generators, key functions, callbacks of C, recursion. Prints how many seconds its rounds took."""

import collections
import json
import re
import time


class Node:
    def __init__(self, value):
        self.value = value
        self.below = self.above = None

    def insert(self, value):
        side = "below" if value < self.value else "above"
        node = getattr(self, side)
        if node:
            node.insert(value)
        else:
            setattr(self, side, Node(value))

    def walk(self):
        if self.below:
            yield from self.below.walk()
        yield self.value
        if self.above:
            yield from self.above.walk()


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def words(text):
    return [match.group(1) for match in re.finditer(r"(\w+)=", text)]


def work():
    number, root = 12345, Node(500000)
    for _ in range(3000):
        number = (number * 1103515245 + 12345) % 1000003
        root.insert(number)
    descending = sorted(root.walk(), key=lambda value: -value)
    table = json.loads(json.dumps({str(key): [key, key * 2] for key in descending}))
    counts = collections.Counter(words("alpha=1 beta=2 gamma=3 " * 300))
    return len(table) + sum(counts.values()) + fibonacci(19)


work()
begun = time.perf_counter()
for _ in range(15):
    work()
print(time.perf_counter() - begun)
