//! Which scenarios run, on which brokers: all of them, on each.

macro_rules! on_each_broker {
    ($($file:ident :: $scenario:ident),+ $(,)?) => {
        #[cfg(feature = "kafka")]
        on_broker!(on_kafka, kafka::Kafka, $($file::$scenario),+);
        #[cfg(feature = "nats")]
        on_broker!(on_nats, nats::Nats, $($file::$scenario),+);
        #[cfg(feature = "rabbitmq")]
        on_broker!(on_rabbitmq, rabbitmq::Rabbit, $($file::$scenario),+);
    };
}

macro_rules! on_broker {
    ($module:ident, $broker_file:ident :: $broker:ident, $($file:ident :: $scenario:ident),+) => {
        mod $module {
            use super::super::{$broker_file::$broker, *};

            $(
                #[tokio::test]
                async fn $scenario() {
                    $file::$scenario::<$broker>().await;
                }
            )+

            #[tokio::test]
            #[ignore = "run by other tests as a process of its own"]
            async fn consumer_process() {
                crashes::consumer_process::<$broker>().await;
            }
        }
    };
}

on_each_broker! {
    chaos::everything_three_times_out_of_order_to_consumers_that_are_killed_is_worked_on_once,
    crashes::m1_a_consumer_that_is_killed_between_commit_and_ack_leaves_a_duplicate_behind,
    duplicates::m5_a_message_that_is_published_three_times_is_worked_on_once_and_always_acked,
    duplicates::m6_a_message_without_an_id_is_dead_lettered_with_the_reason,
    duplicates::m6_a_message_without_an_id_gets_one_where_that_is_configured,
    duplicates::m8_a_function_that_panics_over_a_message_costs_only_that_message,
    failures::m8_a_handler_that_panics_costs_its_message_one_delivery_and_the_consumer_nothing,
    failures::poison_is_dead_lettered_with_the_reason_and_what_heals_is_worked_on,
    outages::m1_acks_that_are_lost_with_the_broker_are_followed_by_duplicates_that_are_acked,
    outages::m11_while_the_database_is_away_nothing_is_acked_or_dead_lettered_and_the_consumer_is_not_ready,
    outages::m11_a_database_that_is_restarted_costs_no_message_and_doubles_none,
    outages::a_day_without_a_partition_pauses_the_consumer_until_there_is_one,
    spawned::consumers_with_a_function_and_with_a_closure_that_owns_its_state_run_as_tasks,
    waiting::m4_a_message_in_flight_is_held_and_seldom_given_back,
    waiting::m7_a_handler_slower_than_the_ack_timeout_does_its_work_once,
    waiting::shutdowns_under_load_lose_nothing_and_double_nothing,
}
