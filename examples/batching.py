"""A server that decodes for all its clients at once: continuous batching.

    python3 examples/batching.py [cuda]

The states of all sequences lie in one pool, and an index says whose is where.
Each turn the server lets go of the clients that are done or have left, lets
waiting ones in where a place is free, reads what these have said (packed, in
pieces of at most PIECE tokens, so that nobody waits long), and decodes one
token of each of the others. The batch has always PLACES rows, so that a GPU
can replay one CUDA graph: rows that nobody has are -1 in the index.

The model is a toy, one rule over random weights: it is the turns that count.
The server's thread is the caller of turn(); clients may be of any thread."""
import os
import queue
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../lang/python"))
try:
    import torch
except ImportError:
    sys.exit("this example wants PyTorch (Debian: python3-torch)")
import flin.nn                                      # noqa: E402

PLACES, PIECE = 4, 16           # clients at once; tokens read in a turn
BYTES, H, D = 256, 2, 32


class Client:
    """One request: its tokens come out of `tokens`, None behind the last."""

    def __init__(self, prompt, most):
        self.prompt, self.most = list(prompt), most
        self.tokens, self.gone = queue.SimpleQueue(), False
        self.place, self.read, self.told = None, 0, 0
        self.latest = None

    def leave(self):
        """Nothing more is wanted; its place is free from the next turn on."""
        self.gone = True

    def all(self):
        return list(iter(self.tokens.get, None))


class Model:
    """From tokens to logits by one rule; states live in a pool."""

    def __init__(self, name="gated_deltanet", device="cpu", seed=0):
        g = torch.Generator().manual_seed(seed)
        self.rule, self.device = flin.load(name), device
        self.into = {
            a.name: (torch.randn(BYTES, H, *[D] * len(a.axes), generator=g))
            .to(device) for a in self.rule.inputs}
        self.out = torch.randn(H * D, BYTES, generator=g).to(device)
        self.pool = torch.zeros(PLACES, H, D, D, device=device)

    def inputs(self, tokens):
        """Of each rule's input what its domain allows."""
        made = {}
        for a in self.rule.inputs:
            x = self.into[a.name][tokens]
            made[a.name] = flin.nn.ACTIVATIONS[a.domain](x)
        return made

    def best(self, o):
        return (o.flatten(-2) @ self.out).argmax(-1)

    def prefill(self, pieces, places):
        """The token behind each of the pieces, packed."""
        ends = torch.tensor([len(p) for p in pieces]).cumsum(0)
        packed = torch.tensor([t for p in pieces for t in p],
                              device=self.device)[None]
        o, _ = self.rule(**self.inputs(packed), initial_state=self.pool,
                         state_index=torch.tensor(places, device=self.device),
                         cu_seqlens=torch.cat([ends.new_zeros(1), ends]))
        return self.best(o[0, ends.to(o.device) - 1]).tolist()

    def decode(self, tokens, places):
        """The next token of each row; of rows at place -1 anything."""
        x = torch.tensor(tokens, device=self.device)[:, None]
        o, _ = self.rule.step(**self.inputs(x), state=self.pool,
                              state_index=torch.tensor(places,
                                                       device=self.device))
        return self.best(o[:, 0].nan_to_num()).tolist()


class Server:
    def __init__(self, model):
        self.model, self.waiting = model, queue.SimpleQueue()
        self.active, self.free = [], list(range(PLACES))

    def submit(self, prompt, most):
        client = Client(prompt, most)
        self.waiting.put(client)
        return client

    def let_go(self):
        for c in [c for c in self.active if c.gone or c.told == c.most]:
            self.active.remove(c)
            self.free.append(c.place)
            c.tokens.put(None)

    def let_in(self):
        while self.free and not self.waiting.empty():
            c = self.waiting.get()
            c.place = self.free.pop()
            self.model.pool[c.place].zero_()    # what it held is another's
            self.active.append(c)

    def tell(self, client, token):
        client.latest = token
        client.told += 1
        client.tokens.put(token)

    @torch.no_grad()
    def turn(self):
        """False: there is nobody."""
        self.let_go()
        self.let_in()
        readers = [c for c in self.active if c.read < len(c.prompt)]
        talkers = [c for c in self.active if c not in readers]
        if readers:
            pieces = [c.prompt[c.read:c.read + PIECE] for c in readers]
            found = self.model.prefill(pieces, [c.place for c in readers])
            for c, piece, token in zip(readers, pieces, found):
                c.read += len(piece)
                if c.read == len(c.prompt):
                    self.tell(c, token)
        if talkers:
            nobody = PLACES - len(talkers)
            found = self.model.decode(
                [c.latest for c in talkers] + [0] * nobody,
                [c.place for c in talkers] + [-1] * nobody)
            for c, token in zip(talkers, found):
                self.tell(c, token)
        return bool(self.active)

    def serve(self, stop):
        while self.turn() or not self.waiting.empty() or not stop.is_set():
            if not self.active and self.waiting.empty():
                stop.wait(0.001)


def main():
    server, stop = Server(Model(device=(sys.argv + ["cpu"])[1])), \
        threading.Event()
    thread = threading.Thread(target=server.serve, args=(stop,))
    thread.start()
    clients = [server.submit(b"client %d says: " % i * (i + 1), 12 + i)
               for i in range(7)]
    clients[2].leave()
    for i, c in enumerate(clients):
        print(f"client {i}:", *c.all())
    stop.set()
    thread.join()


if __name__ == "__main__":
    main()
