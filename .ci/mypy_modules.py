"""A plugin of mypy: what torch cannot know of a module's attributes is Any, instead of "a tensor or a module"."""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import AttributeContext, Plugin
from mypy.types import AnyType, Type, TypeOfAny, UnionType, get_proper_type

_MODULE = "torch.nn.modules.module.Module."


def _attribute(context: AttributeContext) -> Type:
    """Any for what only `Module.__getattr__` finds: it promises a union that no use of the attribute would pass."""
    known = context.default_attr_type
    return AnyType(TypeOfAny.special_form) if isinstance(get_proper_type(known), UnionType) else known


class Modules(Plugin):
    """Looks at every attribute of `torch.nn.Module` and its subclasses."""

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        return _attribute if fullname.startswith(_MODULE) else None


def plugin(version: str) -> type[Plugin]:
    """What mypy calls."""
    return Modules
