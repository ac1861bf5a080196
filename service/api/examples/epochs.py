"""Examples of schedules, epochs, plans and the history."""

SCHEDULE_ITEM = {
    "page_id": 1,
    "url": "https://example.com/news",
    "importance": 10.0,
    "change_rate": 0.31,
    "crawl_rate": 0.42,
    "crawl_probability": 0.0,
    "next_crawl_at": "2026-05-03T21:14:07Z",
}
SCHEDULE_ANSWER = {
    "epoch": 7,
    "published_at": "2026-05-01T12:10:00Z",
    "bandwidth": 0.6,
    "items": [SCHEDULE_ITEM],
    "next_cursor": "k6lzY2hlZHVsZTEHAQ",
}
CALIBRATION = {
    "estimator": "bursty",
    "n": 3990,
    "n_changed": 890,
    "sum_predicted": 901.2,
    "calibration_error": 0.011,
    "log_loss": 0.42,
    "log_loss_constant": 0.53,
    "bins": [
        {"up_to": 0.0625, "n": 2900, "sum_predicted": 81.2, "n_changed": 80},
        {"up_to": 1.0, "n": 1090, "sum_predicted": 820.0, "n_changed": 810},
    ],
}
HISTORY_ANSWER = {
    "step_s": 600,
    "host": None,
    "items": [
        {
            "at": "2026-05-01T12:00:00Z",
            "complete": True,
            "epoch": 412,
            "n_leased": 4100,
            "n_reported": 4050,
            "n_failed": 31,
            "n_changed": 900,
            "n_wasted": 3100,
            "n_pings": 120,
            "n_true_pings": 70,
            "n_false_pings": 30,
            "n_missed": 12,
            "bandwidth": 600000.0,
            "n_asked": 4166.7,
            "measured_at": "2026-05-01T12:10:02Z",
            "n_pages": 1000000,
            "n_never_crawled": 2100,
            "n_overdue": 350,
            "fresh_share": 0.83,
            "fresh_share_plain": 0.79,
            "harmonic_staleness": 0.31,
            "harmonic_staleness_plain": 0.38,
            "sampled_share": 1.0,
            "n_paused_by_trouble": 3,
            "n_paused_by_operator": 1,
            "calibration": [CALIBRATION],
        }
    ],
    "next_cursor": "kqhoaXN0b3J5Mc5p9JfY",
}
EPOCH_ANSWER = {
    "epoch": 7,
    "status": "published",
    "requested_at": "2026-05-01T12:09:59Z",
    "started_at": "2026-05-01T12:09:59Z",
    "finished_at": "2026-05-01T12:10:00Z",
    "reason": None,
    "bandwidth": 0.6,
    "bandwidth_used": 0.6,
    "multiplier": 11.3,
    "harmonic_cost": 5.7,
    "binary_cost": 3.9,
    "kkt_residual": 2.2e-16,
    "duality_gap": 1.3e-15,
    "passes": 4,
    "n_pages": 3,
    "budget_factor": 1.04,
    "prior": {
        "a": 0.5,
        "b": 15.0,
        "within_shape": 1.8,
        "between_shape": 0.9,
        "dispersion": 5.0,
        "seen_pages": 3.0,
        "seen_changes": 7.0,
        "seen_days": 210.0,
        "seen_squares": 21.0,
    },
    "seconds": {"load": 0.002, "estimate": 0.001, "allocate": 0.001, "publish": 0.004},
    "calibration": [CALIBRATION],
}
EPOCHS_ANSWER = {"items": [{**EPOCH_ANSWER, "calibration": None}], "next_cursor": "kqdlcG9jaHMxBw"}
PLAN_ANSWER = {
    "epoch": 7,
    "at": "2026-05-01T12:11:30Z",
    "n_pages": 3,
    "n_hosts": 1,
    "min_bandwidth": 0.1,
    "in_force": {
        "bandwidth": 0.6,
        "feasible": True,
        "bandwidth_used": 0.6,
        "multiplier": 11.3,
        "harmonic_cost": 5.7,
        "binary_cost": 3.9,
        "fresh_share": 0.675,
        "hosts": [
            {
                "host": "example.com",
                "n_pages": 3,
                "crawl_rate": 0.6,
                "max_crawl_rate": None,
                "at_cap": False,
            }
        ],
        "tags": [{"tag": "news", "n_pages": 1, "crawl_rate": 0.42}],
    },
    "items": [
        {
            "bandwidth": 0.08,
            "feasible": False,
            "reason": "minimum crawl rates need 0.1 crawls a day, 0.02 more than this bandwidth; "
            "an epoch would fail",
            "n_starved": 1,
            "starved": [{"page_id": 1, "min_crawl_rate": 0.1}],
        }
    ],
}
REQUESTED = {
    "epoch": 8,
    "status": "requested",
    "requested_at": "2026-05-01T12:15:00Z",
}
HEALTH = {"status": "ok", "version": "0.1.0"}
