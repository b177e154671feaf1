//! What a request costs: system calls, sends and allocations.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use event_core::testing::Call;
use event_http::Request;
use tests::http::{PAGE, Web, Wire, each_simulated_web};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n";

#[test]
fn a_keep_alive_request_is_a_wait_a_receive_and_a_send() {
    each_simulated_web(|web| {
        web.page();
        let sim = web.bed.sim().unwrap().clone();
        let client = web.client();
        web.ask(&client, GET, 1);
        web.settle(&client);
        for _ in 0..tests::few_under_miri(10, 2) {
            client.forget();
            client.write(GET);
            let before = sim.calls();
            let flags = event_core::LoopFlags::ONCE;
            web.base.run(flags).unwrap();
            let after = sim.calls();
            let count = |call| after[call] - before[call];
            assert_eq!((count(Call::Wait), count(Call::Recv), count(Call::Send)), (1, 1, 1));
            assert_eq!(after.total() - before.total(), 3, "{before:?} {after:?}");
            client.read();
            assert!(client.text().ends_with(PAGE));
        }
    });
}

#[test]
fn a_new_connection_is_accepted_registered_and_closed_in_few_calls() {
    each_simulated_web(|web| {
        web.page();
        let sim = web.bed.sim().unwrap().clone();
        let client = web.client();
        web.ask(&client, GET, 1);
        drop(client);
        web.settle_all();
        let before = sim.calls();
        let client = web.client();
        web.ask(&client, b"GET / HTTP/1.0\r\n\r\n", 1);
        drop(client);
        web.settle_all();
        let after = sim.calls();
        for (call, most) in [
            (Call::Change, 2),
            (Call::Recv, 2),
            (Call::Send, 1),
            (Call::Close, 1),
            (Call::Shutdown, 0),
            (Call::PeerAddress, 0),
        ] {
            assert!(after[call] - before[call] <= most, "{call:?}: {}", after[call] - before[call]);
        }
    });
}

#[test]
fn a_warm_request_allocates_twice_at_most_besides_its_body() {
    tests::each_seed(|bed| {
        let mut web = Web::new(bed, Wire::Listener);
        web.server.set_gencb(|req: Request| req.send_reply(200, None, ""));
        let client = web.client();
        for _ in 0..tests::few_under_miri(20, 5) {
            web.ask(&client, GET, 1);
            client.forget();
        }
        let cost = |web: &mut Web<'_>| {
            client.write(GET);
            let info = allocation_counter::measure(|| {
                web.base.run(event_core::LoopFlags::ONCE).unwrap();
            });
            client.read();
            info.count_total
        };
        let costs: Vec<u64> = (0..tests::few_under_miri(10, 2)).map(|_| cost(&mut web)).collect();
        assert!(costs.iter().all(|&cost| cost <= 2), "{costs:?}");
    });
}
