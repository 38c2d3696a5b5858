"""Prices: dated, kinds kept apart, the user's own first, none where none is known."""

import csv
import datetime as dt
import importlib.util
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from calc.errors import InputError
from presets import accelerators, prices
from presets.prices import Price, PriceKind, price_of, prices_of

TODAY = dt.date(2026, 11, 29)


@pytest.mark.reference
def test_the_snapshot_restates_every_collected_price(reference):
    with (reference / "prices.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    ours = Counter(
        (p.gpu_id, p.cloud, p.instance, p.gpus_per_instance, p.usd_per_hour, str(p.date), p.source_url)
        for p in prices.snapshot()
    )
    theirs = Counter(
        (
            r["gpu_id"],
            r["cloud"],
            r["instance"],
            int(r["gpus_per_instance"]),
            float(r["usd_per_hour_on_demand"]),
            r["date_of_price"],
            r["source_url"],
        )
        for r in rows
    )
    assert ours == theirs
    assert sum(ours.values()) == 101
    per_gpu = {(p.gpu_id, p.instance, p.cloud): p.usd_per_gpu_hour for p in prices.snapshot()}
    for r in rows:
        assert per_gpu[r["gpu_id"], r["instance"], r["cloud"]] == pytest.approx(
            float(r["usd_per_gpu_hour"]), rel=1e-4
        )


def test_marketplace_prices_are_kept_apart():
    kinds = {(p.cloud, p.instance): p.kind for p in prices.snapshot()}
    assert kinds["runpod", "pod community"] is PriceKind.MARKETPLACE
    assert kinds["runpod", "pod secure"] is PriceKind.ON_DEMAND
    assert {p.kind for p in prices.snapshot() if p.cloud in {"akash", "vast.ai"}} == {PriceKind.MARKETPLACE}
    # RunPod's community H100 at 2.69 is cheaper than its secure one at 3.99, and must not stand in for it
    assert price_of("h100-sxm5-80gb", cloud="runpod").usd_per_gpu_hour == 3.99
    assert price_of("h100-sxm5-80gb", cloud="runpod", kind=PriceKind.MARKETPLACE).usd_per_gpu_hour == 2.69
    assert price_of("rtx-4090", kind=PriceKind.SPOT) is None


def test_a_clouds_newest_reading_wins_over_its_older_ones():
    # RunPod listed the H100 SXM at 3.49 on 7 October and at 3.99 on 9 November
    every = prices_of("h100-sxm5-80gb", cloud="runpod")
    assert {p.usd_per_gpu_hour for p in every} == {3.49, 3.99}
    assert [p.usd_per_gpu_hour for p in prices.current(every)] == [3.99]


def test_the_users_own_price_overrides_and_an_unpriced_part_has_none():
    own = price_of("mi355x", own_usd_per_gpu_hour=2.5)
    assert (own.kind, own.usd_per_gpu_hour, own.words(TODAY)) == (PriceKind.OWN, 2.5, "your own price")
    assert price_of("mi355x") is None
    assert price_of("typed:my-card") is None
    assert price_of("h100-sxm5-80gb:3g.40gb") is None
    assert price_of("h100-sxm5-80gb:3g.40gb", own_usd_per_gpu_hour=1.0).usd_per_gpu_hour == 1.0


@pytest.mark.parametrize("bad", [-1, 0, float("nan"), float("inf"), 1e9])
def test_an_unbelievable_own_price_is_refused(bad):
    with pytest.raises(InputError, match="usd_per_hour"):
        price_of("h100", own_usd_per_gpu_hour=bad)


def test_a_doubtful_price_is_shown_but_not_chosen():
    # a GB200 at the price of the H200 on the same page (notes of the collection)
    assert 4.54 in {p.usd_per_gpu_hour for p in prices_of("gb200-gpu")}
    assert price_of("gb200-gpu").usd_per_gpu_hour == 10.5
    assert all(p.instance.endswith("unavailable)") is bool(p.doubtful) for p in prices_of("mi300x"))


def test_the_age_is_shown_and_an_old_price_says_so():
    price = price_of("h200-sxm-141gb", cloud="aws")
    assert price.age_days(TODAY) == 115  # read on 6 August
    assert price.words(TODAY) == "aws, on demand, 2026-08-06 (115 days old: check it)"
    assert "check it" not in price_of("h100-sxm5-80gb", cloud="aws").words(TODAY)


def test_every_price_is_of_a_part_in_the_catalogue_and_31_parts_have_one():
    priced = {p.gpu_id for p in prices.snapshot()}
    assert priced <= set(accelerators.all_ids())
    assert len(priced) == 31
    assert len({p.cloud for p in prices.snapshot()}) == 18


GOOD = (
    '[[reading]]\nsource = "s"\ndate = 2026-01-01\nprices = [{ gpu = "t4", cloud = "c", usd_per_hour = 1 }]\n'
)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"t4"', '"t5"', "reading 1, price 1.*id of the catalogue"),
        ("usd_per_hour = 1", "usd_per_hour = -1", "reading 1, price 1, usd_per_hour"),
        ("usd_per_hour = 1", 'usd_per_hour = "1"', "reading 1, price 1, usd_per_hour"),
        (', cloud = "c"', "", "it needs cloud"),
        ("2026-01-01", '"soon"', "needs a date"),
        ("usd_per_hour = 1", 'usd_per_hour = 1, kind = "own"', "on demand, spot or marketplace"),
        ("usd_per_hour = 1", "usd_per_hour = 1, gpus = 0", "gpus_per_instance"),
        ("usd_per_hour = 1", "usd_per_hour = 1, eur = 3", "fields of a price"),
        ("[[reading]]", "[[reading", "must be TOML"),
    ],
)
def test_a_bad_snapshot_is_refused_by_reading_and_entry(old, new, words):
    assert len(prices.read_snapshot(GOOD)) == 1
    with pytest.raises(InputError, match=words):
        prices.read_snapshot(GOOD.replace(old, new))


@pytest.fixture(scope="module")
def refresh():
    path = Path(__file__).resolve().parents[2] / "scripts" / "refresh_prices.py"
    spec = importlib.util.spec_from_file_location("refresh_prices", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def offer(where, gpu, price, **more):
    """An offer as gpuhunt returns it; `where` is (provider, instance, location), `gpu` its name and GB."""
    provider, instance, location = where
    values = {"gpu_count": 1, "spot": False, "gpu_name": gpu[0], "gpu_memory": gpu[1], "price": price} | more
    return SimpleNamespace(provider=provider, instance_name=instance, location=location, **values)


def test_offers_become_prices_only_where_the_part_is_certain(refresh):
    offers = [
        offer(("aws", "p5.48xlarge", "us-east-1"), ("H100", 80.0), 56.0, gpu_count=8),
        offer(("aws", "p5.48xlarge", "eu-west-1"), ("H100", 80.0), 60.0, gpu_count=8),
        offer(("aws", "g6.xlarge", "us-east-1"), ("L4", 24.0), 0.3, spot=True),
        offer(("runpod", "NVIDIA H100 PCIe", "CZ"), ("H100", 80.0), 2.0),
        offer(("runpod", "NVIDIA H100 80GB HBM3", "US-KS-2"), ("H100", 80.0), 3.9),
        offer(("hotaisle", "1x H100", "us"), ("H100", 80.0), 2.2),  # which form? nobody says
        offer(("gcp", "v6e-8", "us-east1"), ("v6e", 0.0), 21.6, gpu_count=8),
        offer(("aws", "m7i.large", "us-east-1"), (None, None), 0.1, gpu_count=0),
    ]
    found, left_out = refresh.read_offers(offers, TODAY)
    assert {(p.gpu_id, p.kind, p.usd_per_gpu_hour) for p in found} == {
        ("h100-sxm5-80gb", PriceKind.ON_DEMAND, 7.0),
        ("l4", PriceKind.SPOT, 0.3),
        ("h100-pcie-80gb", PriceKind.MARKETPLACE, 2.0),
        ("h100-sxm5-80gb", PriceKind.ON_DEMAND, 3.9),
        ("tpu-v6e", PriceKind.ON_DEMAND, 2.7),
    }
    assert left_out == {"hotaisle H100 80 GB": 1}


def test_a_refresh_replaces_what_was_read_and_writes_a_file_that_reads_back(refresh):
    old = prices.snapshot()
    new = [
        Price(
            gpu_id="h100-sxm5-80gb",
            cloud="aws",
            kind=PriceKind.ON_DEMAND,
            usd_per_hour=56.0,
            gpus_per_instance=8,
            instance='p5 "x"',
            date=TODAY,
            source_url=refresh.SOURCE,
        )
    ]
    merged = refresh.merged(old, new)
    assert len(merged) == len(old)
    again = prices.read_snapshot(refresh.as_toml(merged, "# head\n\n"))
    assert Counter(again) == Counter(merged)
    assert refresh.comment_head(prices.SNAPSHOT_FILE.read_text(encoding="utf-8")).startswith("# Prices of")
    unchanged = refresh.as_toml(old, "")
    assert Counter(prices.read_snapshot(unchanged)) == Counter(old)


def test_every_id_that_a_refresh_can_write_is_in_the_catalogue(refresh):
    ids = set(refresh.SINGLE.values()) | {i for forms in refresh.BY_FORM.values() for i in forms.values()}
    assert ids <= set(accelerators.all_ids())
