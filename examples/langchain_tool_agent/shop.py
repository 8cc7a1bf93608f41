"""What the customers want, and what counts as serving them well."""

import random

ITEMS = (
    *("lamps", "chairs", "tables", "clocks", "vases", "mirrors"),
    *("rugs", "shelves", "stools", "desks", "plants", "candles"),
)
PHRASES = (
    "Please order {quantity} {item}.",
    "I need {quantity} {item}.",
    "Can I get {quantity} {item}?",
    "{quantity} {item}, please.",
)
QUANTITIES = range(1, 6)
STOCKS = range(10)


def tasks(train: int = 400, val: int = 128, *, seed: int = 0) -> tuple[list[dict], list[dict]]:
    """Customers' requests to train on and to validate with; for every other one there is not enough.

    A quarter of all combinations of item, quantity and stock is held out: only validation has them.
    """
    chance = random.Random(seed)
    every = [(item, quantity, stock) for item in ITEMS for quantity in QUANTITIES for stock in STOCKS]
    random.Random(0).shuffle(every)
    quarter = len(every) // 4
    return _draw(every[quarter:], train, chance), _draw(every[:quarter], val, chance)


def confirmation(item: str, quantity: int) -> str:
    """What a customer is told whose order was placed."""
    return f"Ordered {quantity} {item}."


def refusal(item: str, stock: int) -> str:
    """What a customer is told when there is not enough."""
    return f"Only {stock} {item} left."


def reward(task: dict, output: dict) -> float:
    """1 for the right outcome, 0 for any other; how the desk got there does not count."""
    item, quantity, stock = task["item"], task["quantity"], task["stock"]
    if stock >= quantity:
        right = {
            "answer": confirmation(item, quantity),
            "orders": [{"item": item, "quantity": quantity}],
        }
    else:
        right = {"answer": refusal(item, stock), "orders": []}
    return float(output == right)


def _draw(combinations: list[tuple[str, int, int]], count: int, chance: random.Random) -> list[dict]:
    enough = [combination for combination in combinations if combination[2] >= combination[1]]
    short = [combination for combination in combinations if combination[2] < combination[1]]
    return [_task(*chance.choice(short if number % 2 else enough), chance) for number in range(count)]


def _task(item: str, quantity: int, stock: int, chance: random.Random) -> dict:
    request = chance.choice(PHRASES).format(item=item, quantity=quantity)
    return {"item": item, "quantity": quantity, "stock": stock, "request": request}
