"""Several threads probe at once: each gets what it would get alone."""

from concurrent.futures import ThreadPoolExecutor

import whatwhere as ww
from whatwhere.models.probe.tiny import tiny_config, tiny_model


def test_each_thread_gets_what_it_would_get_alone() -> None:
    models = [tiny_model(tiny_config(name)) for name in ("llama", "gpt2", "bloom", "gemma3_text")]
    alone = [repr(ww.probe(model)) for model in models]
    with ThreadPoolExecutor(4) as pool:
        assert [repr(found) for found in pool.map(ww.probe, models)] == alone
