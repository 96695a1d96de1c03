"""The text of patterns: the Python expression that builds them, with shared parts given names.

``parse_pattern(pattern_text(p))`` builds the same pattern again. Predicates are printed by name and must be handed to
the parser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from graft.patterns import language
from graft.patterns import value_constraints as constraints
from graft.patterns.walk import parts, walk


def pattern_text(pattern: language.Pattern) -> str:
    """Return the text of a pattern: one expression, after a line for every part that stands in several places."""
    return _Writer(pattern).text()


class _Writer:
    def __init__(self, root: language.Pattern) -> None:
        self.root = root
        everything = walk(root)
        uses = Counter(part for owner in everything for part in _mentions(owner))
        for owner in everything:
            if isinstance(owner, language.Optional):
                extended, base = owner.options
                uses[base] -= sum(parts(inner).count(base) for inner in _below(extended, base))
        self.aliases = [part for part in everything if isinstance(part, language.Wildcard) and part.target is not None]
        shared = [part for part in everything if uses[part] > 1 and part not in self.aliases and part is not root]
        self.names = {part: f"p{number}" for number, part in enumerate([*self.aliases, *shared], 1)}
        self.shared = shared
        self.lambdas = 0

    def text(self) -> str:
        """Return the lines of the pattern."""
        lines = [f"{self.names[alias]} = wildcard()" for alias in self.aliases]
        for part in self._in_order():
            lines.append(f"{self.names[part]} = {self.define(part)}")
        for alias in self.aliases:
            assert alias.target is not None
            lines.append(f"{self.names[alias]}.redirect_to({self.use(alias.target)})")
        return "\n".join([*lines, self.use(self.root)])

    def _in_order(self) -> Iterator[language.Pattern]:
        """Yield the shared parts, inner ones first."""
        done: set[language.Pattern] = set(self.aliases)
        for part in self.shared:
            stack = [(part, False)]
            while stack:
                current, expanded = stack.pop()
                if expanded:
                    if current in self.names:
                        yield current
                elif current not in done:
                    done.add(current)
                    stack.append((current, True))
                    stack.extend((inner, False) for inner in reversed(parts(current)))

    def use(self, pattern: language.Pattern) -> str:
        """Return a pattern's name, or its text where it has none."""
        return self.names.get(pattern) or self.define(pattern)

    def operand(self, pattern: language.Pattern) -> str:
        """Return a pattern as a method or an operator can follow it."""
        text = self.use(pattern)
        return (
            f"({text})"
            if pattern not in self.names and isinstance(pattern, language.Alternative | language.Both | language.Not)
            else text
        )

    def define(self, pattern: language.Pattern) -> str:
        """Return the expression that builds a pattern."""
        match pattern:
            case language.Wildcard():
                return "wildcard()"
            case language.Absent():
                return "absent()"
            case language.ConstantPattern():
                return _constant(pattern)
            case language.InputPattern(name=name):
                return f"is_input({_quoted(name)})" if name else "is_input()"
            case language.Operator():
                return self._operator(pattern)
            case language.Output(node=node, index=index):
                return f"{self.operand(node)}.output({index})"
            case language.Optional():
                return self._optional(pattern)
            case language.Alternative(options=options):
                return " | ".join(self.operand(option) for option in options)
            case language.Both(left=left, right=right):
                return f"{self.operand(left)} & {self.operand(right)}"
            case language.Not(pattern=inner):
                return f"~{self.operand(inner)}"
            case language.Named(pattern=inner, name=name):
                return f"{self.operand(inner)}.named({_quoted(name)})"
            case language.Constrained(pattern=inner, constraint=constraint):
                return f"{self.operand(inner)}.{self._constraint(constraint)}"
            case language.Body(pattern=inner, name=name, body=body, output=output):
                more = f", {output}" if output else ""
                return f"{self.operand(inner)}.has_body({_quoted(name)}, {self.use(body)}{more})"
            case language.Dominator(parent=parent, path=path, child=child):
                return f"dominates({self.use(parent)}, {self.use(path)}, {self.use(child)})"
            case language.Together():
                return self._together(pattern)
        raise AssertionError(f"unknown kind of pattern {type(pattern).__name__}")

    def _operator(self, pattern: language.Operator) -> str:
        kind = {"": "is_op", "Composite": "is_composite", "Compiler": "is_region"}[pattern.key]
        names = [_quoted(name) for name in pattern.names]
        if pattern.domain and not pattern.key:
            names.append(f"domain={_quoted(pattern.domain)}")
        text = f"{kind}({', '.join(names)})"
        if pattern.arguments is not None:
            arguments = [self.use(argument) for argument in pattern.arguments]
            text += f"({', '.join([*arguments, '...'] if pattern.prefix else arguments)})"
        return f"{text}.in_any_order()" if pattern.any_order else text

    def _optional(self, pattern: language.Optional) -> str:
        extended, base = pattern.options
        before = self.operand(base)
        self.lambdas += 1
        name = f"x{self.lambdas}"
        outer = self.names.get(base)
        self.names[base] = name
        text = f"{before}.optional(lambda {name}: {self.use(extended)})"
        if outer is None:
            del self.names[base]
        else:
            self.names[base] = outer
        return text

    def _together(self, pattern: language.Together) -> str:
        terms: list[str] = []
        for edge in pattern.edges:
            method = "only_used_by" if edge.only else "used_by"
            index = "" if edge.index is None else f", {edge.index}"
            terms.append(f"{self.operand(edge.producer)}.{method}({self.use(edge.consumer)}{index})")
        if not _is_pair(pattern):
            terms.insert(0, f"outputs({', '.join(self.use(member) for member in pattern.members)})")
        return " & ".join(terms)

    def _constraint(self, constraint: constraints.Constraint | language.SameShape) -> str:
        match constraint:
            case constraints.Attributes(wanted=wanted):
                return f"has_attr({', '.join(f'{name}={_attribute(value)}' for name, value in wanted)})"
            case constraints.DtypeIs(dtypes=dtypes):
                return f"has_dtype({', '.join(map(_quoted, dtypes))})"
            case constraints.ShapeIs(shape=shape):
                return f"has_shape({', '.join('...' if d is ... else _attribute(d) for d in shape)})"
            case constraints.RankIs(ranks=ranks):
                return f"has_rank({', '.join(map(str, ranks))})"
            case language.SameShape(other=other):
                return f"same_shape_as({self.use(other)})"
            case constraints.Where(predicate=predicate, text=text):
                more = f", {_quoted(text)}" if text else ""
                return f"where({_predicate(predicate)}{more})"


def _is_pair(pattern: language.Together) -> bool:
    """Whether the pattern is one edge and nothing else."""
    return len(pattern.edges) == 1 and pattern.members == (pattern.edges[0].consumer, pattern.edges[0].producer)


def _mentions(pattern: language.Pattern) -> tuple[language.Pattern, ...]:
    """Return the parts that the text of a pattern names, as often as it does."""
    if not isinstance(pattern, language.Together) or _is_pair(pattern):
        return parts(pattern)
    return (*pattern.members, *(end for edge in pattern.edges for end in (edge.producer, edge.consumer)))


def _below(pattern: language.Pattern, stop: language.Pattern) -> list[language.Pattern]:
    """Return the pattern and its parts, those of ``stop`` left out."""
    seen: dict[language.Pattern, None] = {}
    stack = [pattern]
    while stack:
        part = stack.pop()
        if part not in seen and part is not stop:
            seen[part] = None
            stack.extend(parts(part))
    return list(seen)


def _constant(pattern: language.ConstantPattern) -> str:
    arguments = [] if pattern.value is None else [_attribute(pattern.value)]
    if pattern.predicate is not None:
        arguments.append(f"where={_predicate(pattern.predicate)}")
    return f"is_constant({', '.join(arguments)})"


def _attribute(value: constraints.AttributeValue) -> str:
    if callable(value):
        return _predicate(value)
    return _quoted(value) if isinstance(value, str) else repr(value)


def _predicate(predicate: object) -> str:
    name = getattr(predicate, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else "predicate"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
