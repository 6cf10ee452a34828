"""Run campaigns and write what they found: `python -m reliability [NAME ...] [--times N [--write]]`.

With `--times` alone (for a quick look) nothing is written. `python -m docs.generate` then writes docs/reliability.md.
"""

import argparse
import time

from reliability.campaigns import CAMPAIGNS
from reliability.findings import write_campaign


def main() -> int:
    """Run the named campaigns, or all; the status is 1 if one lost something."""
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"campaigns: {', '.join(CAMPAIGNS)}")
    parser.add_argument("--times", type=int, help="of each trial; what is found is printed only")
    parser.add_argument("--write", action="store_true", help="with --times: write what is found too")
    options = parser.parse_args()
    if unknown := set(options.names) - set(CAMPAIGNS):
        parser.error(f"there is no campaign {', '.join(sorted(unknown))}; there are {', '.join(CAMPAIGNS)}")
    chosen = options.names or [name for name, each in CAMPAIGNS.items() if each.runs_here()]
    if elsewhere := [f"{name} needs {CAMPAIGNS[name].system}" for name in chosen if not CAMPAIGNS[name].runs_here()]:
        parser.error(", ".join(elsewhere))
    lost = 0
    for name in chosen:
        campaign = CAMPAIGNS[name]
        start = time.monotonic()
        trials = campaign.run(options.times or campaign.times)
        for trial in trials:
            print(
                f"{name}: {trial.tried}: {trial.times} times, {trial.lost} lost; {trial.seen}",
                *trial.failures,
                sep="\n  ",
            )
        if not options.times or options.write:
            command = f"python -m reliability {name}" + (f" --times {options.times} --write" if options.times else "")
            write_campaign(name, command, time.monotonic() - start, trials)
        lost += sum(trial.lost for trial in trials)
    return int(lost > 0)


if __name__ == "__main__":
    raise SystemExit(main())
