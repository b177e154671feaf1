//! Which handler serves a request: paths, patterns, methods and hosts.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::rc::Rc;

use event_http::{Method, MethodSet, Request};
use tests::OnDrop;
use tests::http::{Client, Web, answers, each_web};

/// A handler that answers its name and what the pattern found.
fn say(name: &'static str) -> impl FnMut(Request) -> Result<(), event_http::Error> {
    move |req| {
        let found: Vec<String> = ["id", "rest", "*"]
            .iter()
            .filter_map(|key| req.param(key).map(|value| format!(" {key}={value}")))
            .collect();
        req.send_reply(200, None, format!("{name}{}", found.concat()))
    }
}

/// Status and body of the answer to one request on a new connection.
#[track_caller]
fn ask(web: &mut Web<'_>, line: &str, host: &str) -> (u16, String) {
    let (head, body) = ask_whole(web, line, host);
    (head[9..12].parse().unwrap(), body)
}

#[track_caller]
fn ask_whole(web: &mut Web<'_>, line: &str, host: &str) -> (String, String) {
    let client: Client = web.client();
    let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    web.ask_to_end(&client, request.as_bytes());
    let heads: &[usize] = if line.starts_with("HEAD") { &[0] } else { &[] };
    let (mut all, _) = answers(&client.bytes(), heads).unwrap();
    assert_eq!(all.len(), 1, "{line}");
    let (_, head, body) = all.remove(0);
    (head, String::from_utf8(body).unwrap())
}

#[test]
fn the_route_that_says_most_serves_and_names_what_it_found() {
    each_web(|web| {
        let server = web.server.clone();
        server.set_cb("/users/me", say("exact")).unwrap();
        server.route(Method::GET, "/users/{id}", say("user")).unwrap();
        server.route(Method::GET | Method::PUT, "/users/{id}/posts/*rest", say("posts")).unwrap();
        server.route(Method::GET, "/static/*rest", say("static")).unwrap();
        server.route(Method::GET, "/static/special", say("special")).unwrap();
        for (path, said) in [
            ("/users/me", "exact"),
            ("/users/me?x=1", "exact"),
            ("/users/7", "user id=7"),
            ("/users/a%2Fb%20c", "user id=a/b c"),
            ("/%75sers/7", "user id=7"),
            ("/users/7/posts/", "posts id=7 rest="),
            ("/users/7/posts/2/3?q", "posts id=7 rest=2/3"),
            ("/static/a/../b", "static rest=a/../b"),
            ("/static/special", "special"),
        ] {
            assert_eq!(ask(web, &format!("GET {path}"), "a"), (200, said.into()), "{path}");
        }
        for path in ["/users", "/users/", "/static", "/users/7/8"] {
            assert_eq!(ask(web, &format!("GET {path}"), "a").0, 404, "{path}");
        }
        assert_eq!(ask(web, "GET /users/%FF", "a").0, 400, "a value is text");
        assert_eq!(ask(web, "GET /users/%00", "a").0, 400);
        server.set_gencb(say("other"));
        assert_eq!(ask(web, "GET /nowhere", "a").1, "other");
        assert!(server.del_route("/users/{any}") && !server.del_route("/users/{id}"));
        assert_eq!(ask(web, "GET /users/7", "a").1, "other");
        assert!(server.del_cb("/users/me") && !server.del_cb("/users/me"));
        assert_eq!(ask(web, "GET /users/me", "a").1, "other");
    });
}

#[test]
fn a_method_that_a_path_has_not_is_405_with_those_that_it_has() {
    each_web(|web| {
        let server = web.server.clone();
        server.set_gencb(say("other"));
        server.route(Method::GET, "/a/{id}", say("get")).unwrap();
        server.route(Method::POST, "/a/{id}", say("post")).unwrap();
        server.route(Method::DELETE, "/a/*rest", say("delete")).unwrap();
        assert_eq!(ask(web, "GET /a/1", "a").1, "get id=1");
        assert_eq!(ask(web, "HEAD /a/1", "a"), (200, String::new()), "who serves GET serves HEAD");
        assert_eq!(ask(web, "POST /a/1", "a").1, "post id=1");
        assert_eq!(ask(web, "DELETE /a/1", "a").1, "delete rest=1", "the next pattern has the method");
        let (head, _) = ask_whole(web, "PUT /a/1", "a");
        assert!(
            head.starts_with("HTTP/1.1 405 ")
                && head.contains("\r\nAllow: GET, HEAD, POST, DELETE, OPTIONS\r\n"),
            "{head}"
        );
        let (head, _) = ask_whole(web, "PUT /a/1/2", "a");
        assert!(head.contains("\r\nAllow: DELETE, OPTIONS\r\n"), "{head}");
    });
}

#[test]
fn options_that_nobody_takes_is_answered_with_what_a_path_takes() {
    each_web(|web| {
        let server = web.server.clone();
        server.route(Method::GET, "/a/{id}", say("get")).unwrap();
        server.route(Method::DELETE | Method::TRACE, "/a/*rest", say("delete")).unwrap();
        server.route(Method::OPTIONS, "/own", say("own")).unwrap();
        server.set_cb("/any", say("any")).unwrap();
        let all = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";
        for (path, allow) in [
            ("/a/1", "GET, HEAD, DELETE, OPTIONS"),
            ("/a/1?x=y", "GET, HEAD, DELETE, OPTIONS"),
            ("/a/1/2", "DELETE, OPTIONS"),
            ("http://a/a/1", "GET, HEAD, DELETE, OPTIONS"),
            ("*", all),
            ("http://a", all),
        ] {
            let (head, body) = ask_whole(web, &format!("OPTIONS {path}"), "a");
            let start = format!("HTTP/1.1 204 No Content\r\nAllow: {allow}\r\n");
            assert!(head.starts_with(&start) && body.is_empty(), "{path}: {head}");
            assert!(!head.contains("Content-"), "{head}");
        }
        assert_eq!(ask(web, "OPTIONS /own", "a").1, "own");
        assert_eq!(ask(web, "OPTIONS /any", "a").1, "any");
        assert_eq!(ask(web, "OPTIONS /nowhere", "a").0, 404);
        // A body is read, and the connection goes on.
        let client = web.client();
        let both = b"OPTIONS /a/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /a/2 HTTP/1.1\r\nHost: a\r\n\r\n";
        let text = web.ask(&client, both, 2);
        assert!(text.starts_with("HTTP/1.1 204 ") && text.ends_with("get id=2"), "{text}");
        // Fields of a hook go with it.
        server.set_header_cb(|mut req| {
            req.add_header("Access-Control-Allow-Origin", "*").ok()?;
            Some(req)
        });
        let (head, _) = ask_whole(web, "OPTIONS /a/1", "a");
        assert!(
            head.contains("\r\nAccess-Control-Allow-Origin: *\r\nAllow: GET, HEAD, DELETE, OPTIONS\r\n"),
            "{head}"
        );
        // A handler of everything takes what no route has, the asterisk too; a path with routes is theirs.
        server.set_gencb(say("other"));
        assert_eq!(ask(web, "OPTIONS *", "a").1, "other");
        assert_eq!(ask(web, "OPTIONS /nowhere", "a").1, "other");
        assert_eq!(ask(web, "OPTIONS /a/1", "a").0, 204);
        // Where OPTIONS is not allowed it is neither answered nor listed.
        server.set_allowed_methods(Method::GET | Method::PUT);
        let (head, _) = ask_whole(web, "OPTIONS /a/1", "a");
        assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("\r\nAllow: GET, PUT\r\n"), "{head}");
        let (head, _) = ask_whole(web, "PUT /a/1", "a");
        assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("\r\nAllow: GET\r\n"), "{head}");
    });
}

#[test]
fn a_method_of_the_programs_own_is_served_when_it_is_allowed() {
    each_web(|web| {
        let server = web.server.clone();
        let custom = Method::from_name("CUSTOM").unwrap();
        server.route(custom.clone(), "/x", say("custom")).unwrap();
        assert_eq!(ask(web, "CUSTOM /x", "a").0, 501);
        let mut allowed = MethodSet::default();
        allowed.insert(custom);
        server.set_allowed_methods(allowed);
        assert_eq!(ask(web, "CUSTOM /x", "a").1, "custom");
        let (head, _) = ask_whole(web, "GET /x", "a");
        assert!(head.contains("\r\nAllow: OPTIONS, CUSTOM\r\n"), "{head}");
    });
}

#[test]
fn routes_that_nobody_would_reach_are_refused() {
    each_web(|web| {
        let server = web.server.clone();
        server.set_cb("/a", say("")).unwrap();
        assert!(server.set_cb("/a", say("")).is_err_and(|error| error.is_caller()));
        server.route(Method::GET, "/a", say("")).unwrap();
        assert!(server.route(Method::PUT | Method::GET, "/a", say("")).is_err_and(|error| error.is_caller()));
        server.route(Method::GET, "/{id}", say("")).unwrap();
        assert!(server.route(Method::PUT, "/{name}", say("")).is_err(), "a pattern has one set of names");
        for text in ["a", "/{", "/*a/b", "/{a}/{a}"] {
            let refused = server.route(Method::GET, text, say(""));
            assert!(refused.is_err_and(|error| error.is_invalid_argument()), "{text}");
        }
        for text in ["/none/x", "/none/{id}/x"] {
            let refused = server.route(MethodSet::empty(), text, say("")).unwrap_err();
            assert!(refused.is_caller() && refused.to_string() == "a route needs a method", "{refused}");
            let path = text.replace("{id}", "1");
            assert_eq!(ask(web, &format!("GET {path}"), "a").0, 404, "a refused route leaves nothing behind");
        }
        // A brace is an ordinary byte to set_cb.
        server.set_cb("/{id}/x", say("brace")).unwrap();
        assert_eq!(ask(web, "GET /%7Bid%7D/x", "a").1, "brace");
    });
}

#[test]
fn hosts_have_handlers_of_their_own() {
    each_web(|web| {
        let server = web.server.clone();
        server.set_gencb(say("server"));
        let com = server.add_virtual_host("*.example.com").unwrap();
        com.set_gencb(say("com"));
        let inner = com.add_virtual_host("in.*").unwrap();
        inner.set_gencb(say("inner"));
        let end = server.add_virtual_host("foo.*").unwrap();
        end.set_cb("/only", say("foo")).unwrap();
        end.route(Method::GET, "/r/{id}", say("foo")).unwrap();
        end.add_server_alias("Manolito.info").unwrap();
        server.add_server_alias("own.example.com").unwrap();
        for (line, host, said) in [
            ("GET /", "example.com", "server"),
            ("GET /", "WWW.example.COM:8080", "com"),
            ("GET /", "in.example.com", "inner"),
            ("GET /", "own.EXAMPLE.com", "server"),
            ("GET /only", "foo.org", "foo"),
            ("GET /only", "foo.", "foo"),
            ("GET /r/1", "manolito.info:1", "foo id=1"),
            ("GET http://foo.org/only", "www.example.com", "foo"),
            ("GET /", "[::1]:80", "server"),
        ] {
            assert_eq!(ask(web, line, host), (200, said.into()), "{line} {host}");
        }
        assert_eq!(ask(web, "GET /", "foo.org").0, 404, "a host does not fall back");
        assert!(server.add_virtual_host("FOO.*").is_err_and(|error| error.is_caller()));
        assert!(end.remove_server_alias("manolito.INFO") && !end.remove_server_alias("manolito.info"));
        assert_eq!(ask(web, "GET /only", "manolito.info").1, "server");
        assert!(!com.remove_virtual_host(&end) && server.remove_virtual_host(&end));
        assert_eq!(ask(web, "GET /only", "foo.org").1, "server");
        assert!(end.set_cb("/x", say("")).is_err_and(|error| error.is_server_gone()));
    });
}

#[test]
fn what_hosts_and_routes_capture_is_dropped_with_them() {
    each_web(|web| {
        let alive = Rc::new(Cell::new(0));
        let server = web.server.clone();
        let host = server.add_virtual_host("a").unwrap();
        let inner = host.add_virtual_host("b").unwrap();
        for at in [&host, &inner] {
            let (alive, this, server) = (alive.clone(), at.clone(), server.clone());
            at.set_gencb(move |req| {
                alive.set(alive.get() + 1);
                drop((this.clone(), server.clone(), req));
            });
        }
        let (held, this) = (alive.clone(), server.clone());
        server
            .route(Method::GET, "/{id}", move |req: Request| {
                held.set(1);
                // It takes itself away and frees its server while it runs.
                assert!(this.del_route("/{id}"));
                this.free();
                drop(req);
            })
            .unwrap();
        assert_eq!(Rc::strong_count(&alive), 4);
        let client = web.client();
        web.ask_to_end(&client, b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!((alive.get(), Rc::strong_count(&alive)), (1, 1));
        assert!(host.add_virtual_host("c").is_err() && server.add_server_alias("x").is_err());
    });
}

#[test]
fn a_handler_that_takes_itself_away_may_panic_when_it_is_dropped() {
    each_web(|web| {
        let server = web.server.clone();
        for early in [false, true] {
            let (this, dropped) = (server.clone(), Rc::new(Cell::new(false)));
            let was = dropped.clone();
            let panics = OnDrop(move || {
                was.set(true);
                tests::quiet_panic("the drop of a handler");
            });
            let once = move |req: Request| {
                let _ = &panics;
                assert!(this.del_route("/once"));
                req.send_reply(200, None, "once")
            };
            match early {
                false => server.route(Method::GET, "/once", once).unwrap(),
                true => server.route_early(Method::GET, "/once", once).unwrap(),
            }
            assert_eq!(ask(web, "GET /once", "a").1, "once");
            assert!(dropped.get());
            assert_eq!(ask(web, "GET /once", "a").0, 404);
        }
    });
}

#[test]
fn a_handler_of_everything_that_replaces_itself_may_panic_when_it_is_dropped() {
    each_web(|web| {
        let this = web.server.clone();
        let panics = OnDrop(|| tests::quiet_panic("the drop of a handler"));
        web.server.set_gencb(move |req: Request| {
            let _ = &panics;
            this.set_gencb(say("second"));
            req.send_reply(200, None, "first")
        });
        assert_eq!(ask(web, "GET /", "a").1, "first");
        assert_eq!(ask(web, "GET /", "a").1, "second");
    });
}
