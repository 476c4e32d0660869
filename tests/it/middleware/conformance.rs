//! Which scenarios run, on which brokers: all of them, on each, and those that need not say how they take deliveries both with
//! single ones and with batches.

macro_rules! on_each_broker {
    (single_and_batches: $both:tt, as_it_says: $once:tt $(,)?) => {
        #[cfg(feature = "kafka")]
        on_broker!(on_kafka, kafka::Kafka, $both, $once);
        #[cfg(feature = "nats")]
        on_broker!(on_nats, nats::Nats, $both, $once);
        #[cfg(feature = "rabbitmq")]
        on_broker!(on_rabbitmq, rabbitmq::Rabbit, $both, $once);
    };
}

macro_rules! on_broker {
    (
        $module:ident, $broker_file:ident :: $broker:ident,
        [$($file:ident :: $scenario:ident),+ $(,)?], [$($once_file:ident :: $once:ident),+ $(,)?]
    ) => {
        mod $module {
            use super::super::{$broker_file::$broker, *};

            $(
                #[tokio::test]
                async fn $scenario() {
                    $file::$scenario::<$broker>().await;
                }
            )+

            $(
                #[tokio::test]
                async fn $once() {
                    $once_file::$once::<$broker>().await;
                }
            )+

            mod in_batches {
                use super::*;

                $(
                    #[tokio::test]
                    async fn $scenario() {
                        $file::$scenario::<broker::InBatches<$broker>>().await;
                    }
                )+
            }

            #[tokio::test]
            #[ignore = "run by other tests as a process of its own"]
            async fn consumer_process() {
                crashes::consumer_process::<$broker>().await;
            }
        }
    };
}

on_each_broker! {
    single_and_batches: [
        chaos::everything_three_times_out_of_order_to_consumers_that_are_killed_is_worked_on_once,
        crashes::m1_a_consumer_that_is_killed_between_commit_and_ack_leaves_a_duplicate_behind,
        duplicates::m5_a_message_that_is_published_three_times_is_worked_on_once_and_always_acked,
        duplicates::m6_a_message_without_an_id_is_dead_lettered_with_the_reason,
        duplicates::m6_a_message_without_an_id_gets_one_where_that_is_configured,
        duplicates::m8_a_function_that_panics_over_a_message_costs_only_that_message,
        failures::m8_a_handler_that_panics_costs_its_message_one_delivery_and_the_consumer_nothing,
        failures::poison_is_dead_lettered_with_the_reason_and_what_heals_is_worked_on,
        members::m9_two_consumers_that_come_and_go_under_load_do_every_message_once,
        outages::m1_acks_that_are_lost_with_the_broker_are_followed_by_duplicates_that_are_acked,
        outages::m11_while_the_database_is_away_nothing_is_acked_or_dead_lettered_and_the_consumer_is_not_ready,
        outages::m11_a_database_that_is_restarted_costs_no_message_and_doubles_none,
        outages::a_message_whose_commit_is_unknown_is_not_acked_and_its_redelivery_decides,
        outages::a_day_without_a_partition_pauses_the_consumer_until_there_is_one,
        waiting::m4_a_message_in_flight_is_held_and_seldom_given_back,
        waiting::m7_a_handler_slower_than_the_ack_timeout_does_its_work_once,
        waiting::shutdowns_under_load_lose_nothing_and_double_nothing,
    ],
    as_it_says: [
        batches::messages_that_fail_their_batch_are_alone_from_then_on_and_the_others_are_done_at_once,
        batches::m5_the_duplicates_in_a_batch_are_worked_on_once_and_all_acked,
        examples::the_example_makes_what_it_needs_on_an_empty_broker,
        examples::the_example_works_through_its_queue_and_ends_in_peace,
        spawned::consumers_of_batches_run_as_tasks,
        spawned::consumers_with_a_function_and_with_a_closure_that_owns_its_state_run_as_tasks,
    ],
}
