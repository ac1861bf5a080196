"""Statements of the coordinator: keys, audit, subscriptions, webhooks, history, incarnations."""

from datetime import datetime

from typing_extensions import override

from recrawl_cluster.store.routing import Routing, by_coordinator, by_part
from service.model.access import AuditEntry
from service.model.incarnations import Incarnation
from service.storage.history.contract import PausedQueues


class Coordinated(Routing):
    """The statements on what belongs to no shard.

    An entry of the audit is committed before its act, because no database commits with another. An
    act that fails after its entry is reported, so its caller sends it again.
    """

    incarnation = by_coordinator("incarnation")
    tables = by_coordinator("tables")
    surroundings = by_part("surroundings")
    last_numbers = by_part("last_numbers")
    lock_incarnation = by_part("lock_incarnation")
    settle_incarnation = by_part("settle_incarnation")
    begin_incarnation = by_part("begin_incarnation")
    begin_first = by_part("begin_first")

    @override
    def incarnations(self) -> list[Incarnation]:
        return [each for tx in self.every() for each in tx.incarnations()]

    # crawlers ask any server, and all servers share the coordinator
    last_asked = by_coordinator("last_asked")
    save_asked = by_coordinator("save_asked")
    askers = by_coordinator("askers")
    save_askers = by_coordinator("save_askers")

    # one pace for all databases: the budget is one amount
    pace = by_coordinator("pace")
    lock_pace = by_coordinator("lock_pace")
    save_pace = by_coordinator("save_pace")
    take_allotments = by_coordinator("take_allotments")
    add_allotment = by_coordinator("add_allotment")
    use_allotment = by_coordinator("use_allotment")
    allotments = by_coordinator("allotments")
    pace_unit = by_coordinator("pace_unit")
    set_pace_unit = by_coordinator("set_pace_unit")
    pace_unit_since = by_coordinator("pace_unit_since")
    orders = by_coordinator("orders")
    order_budget = by_coordinator("order_budget")
    order_pause = by_coordinator("order_pause")
    note_hours = by_coordinator("note_hours")

    acceptances = by_coordinator("acceptances")
    accept_need = by_coordinator("accept_need")
    withdraw_acceptance = by_coordinator("withdraw_acceptance")

    audited = False
    """True if this transaction has an entry of the audit."""

    add_key = by_coordinator("add_key")
    key = by_coordinator("key")
    lock_key = by_coordinator("lock_key")
    keys = by_coordinator("keys")
    usable_keys = by_coordinator("usable_keys")
    any_key = by_coordinator("any_key")
    keys_version = by_coordinator("keys_version")
    end_key = by_coordinator("end_key")
    mark_used = by_coordinator("mark_used")
    console_secret = by_coordinator("console_secret")
    keep_console_secret = by_coordinator("keep_console_secret")
    end_session = by_coordinator("end_session")
    forget_sessions = by_coordinator("forget_sessions")
    ended_sessions = by_coordinator("ended_sessions")
    audit = by_coordinator("audit")
    cut_audit = by_coordinator("cut_audit")

    @override
    def append_audit(self, entry: AuditEntry) -> None:
        self.audited = True
        self.coordinator.append_audit(entry)

    add_subscription = by_coordinator("add_subscription")
    subscriptions = by_coordinator("subscriptions")
    subscription = by_coordinator("subscription")
    due_subscriptions = by_coordinator("due_subscriptions")
    change_subscription = by_coordinator("change_subscription")
    verify_subscription = by_coordinator("verify_subscription")
    end_subscription = by_coordinator("end_subscription")
    delete_subscription = by_coordinator("delete_subscription")
    note_content = by_coordinator("note_content")
    count_subscriptions = by_coordinator("count_subscriptions")
    troubled_subscriptions = by_coordinator("troubled_subscriptions")

    add_webhook = by_coordinator("add_webhook")
    webhooks = by_coordinator("webhooks")
    webhook = by_coordinator("webhook")
    change_webhook = by_coordinator("change_webhook")
    delete_webhook = by_coordinator("delete_webhook")
    due_webhooks = by_coordinator("due_webhooks")
    next_due_webhook = by_coordinator("next_due_webhook")
    claim_webhook = by_coordinator("claim_webhook")
    lock_webhook = by_coordinator("lock_webhook")
    renew_claims = by_coordinator("renew_claims")
    webhooks_held = by_coordinator("webhooks_held")
    release_webhooks = by_coordinator("release_webhooks")
    redate_webhooks = by_coordinator("redate_webhooks")
    webhook_progress = by_coordinator("webhook_progress")
    troubled_webhooks = by_coordinator("troubled_webhooks")
    add_delivery = by_coordinator("add_delivery")
    deliveries = by_coordinator("deliveries")
    park_page = by_coordinator("park_page")
    parked_pages = by_coordinator("parked_pages")
    parked_of = by_coordinator("parked_of")
    release_pages = by_coordinator("release_pages")

    n_parts = by_coordinator("n_parts")
    take_parts = by_coordinator("take_parts")
    add_part = by_coordinator("add_part")
    parts_from = by_coordinator("parts_from")
    add_to_step = by_coordinator("add_to_step")
    add_calibrations = by_coordinator("add_calibrations")
    steps = by_coordinator("steps")
    sum_steps = by_coordinator("sum_steps")
    newest_measured = by_coordinator("newest_measured")
    measured_steps = by_coordinator("measured_steps")
    calibrations = by_coordinator("calibrations")
    calibrations_of = by_coordinator("calibrations_of")
    save_host_loads = by_coordinator("save_host_loads")
    host_loads = by_coordinator("host_loads")
    cut_history = by_coordinator("cut_history")

    @override
    def paused_queues(self, now: datetime) -> PausedQueues:
        paused = PausedQueues(set(), set())
        for tx in self.every():
            own = tx.paused_queues(now)
            paused.by_trouble.update(own.by_trouble)
            paused.by_operator.update(own.by_operator)
        return paused
