"""Networks of graphs, points, rays and tables."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.end_to_end.architectures.networks.layers import WIDTH, Attention, Block, floats, ids, mlp, network

NODES, EDGES = floats("x", "nodes", 6), ids("edges", 2, "edges", high=6)
POINTS = floats("x", "batch", "points", 3)


@network(NODES, EDGES)
class GraphConvolution(nn.Module):
    """Sums over neighbours by index, normalized by degrees; the mean of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, WIDTH), nn.Linear(WIDTH, 8)])

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        degree = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(target.shape[0])) + 1
        scale = degree.rsqrt()
        for layer in self.layers:
            x = layer(x)
            sent = x[source] * (scale[source] * scale[target])[:, None]
            x = (torch.zeros_like(x).index_add(0, target, sent) + x / degree[:, None]).relu()
        return x.mean(0)


@network(NODES, EDGES)
class GraphAttention(nn.Module):
    """A softmax over the edges of each node: greatest, sum, share."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.score = nn.Linear(6, WIDTH), nn.Linear(2 * WIDTH, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x, (source, target) = self.layer(x), edges.unbind(0)
        scores = functional.leaky_relu(self.score(torch.cat([x[source], x[target]], -1)))[:, 0]
        greatest = torch.full((x.shape[0],), -1e9).scatter_reduce(0, target, scores, "amax")
        shares = (scores - greatest[target]).exp()
        total = torch.zeros(x.shape[0]).scatter_add(0, target, shares)
        sent = x[source] * (shares / total[target])[:, None]
        return torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(sent), sent)


@network(NODES, floats("places", "nodes", 3), EDGES)
class SchNet(nn.Module):
    """Filters by distances of atoms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.filter, self.out = nn.Linear(6, WIDTH), mlp(8, WIDTH, WIDTH), mlp(WIDTH, 8, 1)

    def forward(self, x: Tensor, places: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        distance = ((places[source] - places[target]).pow(2).sum(-1) + 1e-6).sqrt()
        waves = torch.exp(-2 * (distance[:, None] - torch.linspace(0, 4, 8)).pow(2))
        x = self.first(x)
        x = x + torch.zeros_like(x).index_add(0, target, x[source] * self.filter(waves))
        return self.out(x).sum()


@network(NODES, floats("near", "nodes", "nodes"))
class Graphormer(nn.Module):
    """Attention of all nodes with a bias by what lies between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.degree = nn.Linear(6, WIDTH), Block(), nn.Embedding(64, WIDTH)

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        x = self.first(x) + self.degree((near > 0).sum(1).clamp(max=63))
        return self.block(x[None], None, near[None, None])[0]


@network(POINTS)
class PointNet(nn.Module):
    """Features of each point, the greatest of all beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.first, self.last = mlp(3, 16, 9), mlp(3, 16, 16), mlp(32, 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        turn = self.turn(x).amax(1).view(-1, 3, 3) + torch.eye(3)
        x = self.first(x @ turn)
        return self.last(torch.cat([x, x.amax(1, True).expand_as(x)], -1)).log_softmax(-1)


@network(POINTS)
class DynamicGraph(nn.Module):
    """The four nearest points of each point (DGCNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = mlp(6, 16, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        square = x.pow(2).sum(-1)
        near = (2 * x @ x.transpose(1, 2) - square[:, :, None] - square[:, None]).topk(4)[1]
        batch, count, _ = x.shape
        rows = (near + torch.arange(batch).view(-1, 1, 1) * count).view(-1)
        others = x.reshape(-1, 3)[rows].view(batch, count, 4, 3)
        here = x[:, :, None].expand(-1, -1, 4, -1)
        return self.out(self.layer(torch.cat([here, others - here], -1)).amax(2).amax(1))


@network(POINTS)
class PointTransformer(nn.Module):
    """Sets by learned queries (Set Transformer), and the least distances between two sets."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.pool, self.queries, self.back = (
            nn.Linear(3, WIDTH),
            Attention(),
            Attention(),
            nn.Parameter(torch.randn(4, WIDTH)),
            nn.Linear(WIDTH, 3),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.first(x)
        found = self.back(self.pool(self.queries.expand(x.shape[0], -1, -1), y + self.inner(y)))
        return found, (found[:, :, None] - x[:, None]).pow(2).sum(-1).sqrt().amin(1)


@network(floats("rays", "batch", "samples", 5), floats("steps", "batch", "samples"))
class Nerf(nn.Module):
    """Colours along rays, what stands behind weaker."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = mlp(36, 32, 17), mlp(18, 16, 3)

    def forward(self, rays: Tensor, steps: Tensor) -> Tensor:
        turns = (rays[..., :3, None] * 2.0 ** torch.arange(6)).flatten(-2)
        found = self.first(torch.cat([turns.sin(), turns.cos()], -1))
        alpha = 1 - torch.exp(-functional.relu(found[..., 0]) * steps.abs())
        left = torch.exp(functional.pad((1 - alpha + 1e-6).log(), (1, 0)).cumsum(-1))[:, :-1]
        colour = self.second(torch.cat([found[..., 1:], rays[..., 3:]], -1)).sigmoid()
        return ((alpha * left)[..., None] * colour).sum(1)


@network(floats("dense", "batch", 5), ids("sparse", "batch", 4), ids("bag", "batch", "length"))
class Dlrm(nn.Module):
    """Products of all pairs of features, bags of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom, self.tables, self.bag, self.top = (
            mlp(5, 16, 8),
            nn.ModuleList(nn.Embedding(100, 8) for _ in range(4)),
            nn.EmbeddingBag(100, 8, mode="mean"),
            mlp(23, 16, 1),
        )

    def forward(self, dense: Tensor, sparse: Tensor, bag: Tensor) -> Tensor:
        x = self.bottom(dense)
        rows = [table(sparse[:, number]) for number, table in enumerate(self.tables)]
        both = torch.stack([x, *rows, self.bag(bag)], 1)
        products = both @ both.transpose(1, 2)
        low, high = torch.tril_indices(6, 6, -1)
        return self.top(torch.cat([x, products[:, low, high]], 1)).sigmoid()


@network(ids("history", "batch", "length"), ids("item", "batch"), ids("lengths", "batch", high=6))
class InterestNetwork(nn.Module):
    """An item beside each of a history, weighted; what lies beyond the length is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.score, self.out = nn.Embedding(100, 8), mlp(32, 16, 1), mlp(16, 8, 1)

    def forward(self, history: Tensor, item: Tensor, lengths: Tensor) -> Tensor:
        rows, one = self.embed(history), self.embed(item)[:, None].expand(-1, history.shape[1], -1)
        scores = self.score(torch.cat([rows, one, rows - one, rows * one], -1))[..., 0]
        scores = scores.masked_fill(torch.arange(history.shape[1])[None] >= lengths[:, None], -1e9).softmax(-1)
        return self.out(torch.cat([(scores[:, None] @ rows)[:, 0], one[:, 0]], -1))


@network(floats("x", "batch", 10))
class TabNet(nn.Module):
    """A sparse softmax by sorting and sums."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.out = nn.Linear(10, 10), mlp(10, 8, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x)
        ordered = scores.sort(-1, descending=True)[0]
        sums, counts = ordered.cumsum(-1) - 1, torch.arange(1, 11).float()
        kept = (counts * ordered > sums).sum(-1, True)
        least = sums.gather(-1, kept - 1) / kept
        return self.out(x * (scores - least).clamp(min=0))


@network(floats("numbers", "batch", 4), ids("kinds", "batch", 3))
class FeatureTransformer(nn.Module):
    """Each column of a table is a token; crosses of features beside."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.embed, self.block, self.cross, self.out = (
            nn.Parameter(torch.randn(4, WIDTH)),
            nn.Embedding(300, WIDTH),
            Block(),
            nn.Linear(112, 112),
            nn.Linear(112, 1),
        )

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        rows = self.embed(kinds + torch.arange(3) * 100)
        x = self.block(torch.cat([numbers[..., None] * self.scale, rows], 1)).flatten(1)
        return self.out(x * self.cross(x) + x)


@network(floats("queries", "batch", WIDTH), floats("passages", "count", "length", WIDTH))
class LateInteraction(nn.Module):
    """The best match of each query among all rows of all passages, and which passages they are."""

    def forward(self, queries: Tensor, passages: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.einsum(
            "bd,nld->bnl", functional.normalize(queries, dim=-1), functional.normalize(passages, dim=-1)
        )
        best, places = scores.amax(-1).topk(2)
        chosen = passages[places].mean(2)
        return best, chosen


@network(floats("x", "batch", "height", "width", 3))
class FourierOperator(nn.Module):
    """Few waves of a field, scaled, and back: products with known waves of any grid."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.beside = nn.Parameter(torch.randn(3, 4, 4) * 0.1), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (
            torch.cos(torch.pi * torch.outer(torch.arange(4), torch.arange(n) + 0.5) / n) for n in x.shape[1:3]
        )
        waves = torch.einsum("bhwc,mh,nw->bcmn", x, rows, columns) * self.scale
        return self.beside(x) + torch.einsum("bcmn,mh,nw->bhwc", waves, rows, columns) / 100
