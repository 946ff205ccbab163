package faulty_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
)

func about(text string) faulty.Match {
	return func(r faulty.Request) bool { return r.About(text) }
}

func struck(x *faulty.Fault) bool  { return closed(x.Struck()) }
func replied(x *faulty.Fault) bool { return closed(x.Replied()) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Each fault hits the selected request, once, and no other.
func TestFaultStrikes(t *testing.T) {
	for name, test := range map[string]struct {
		plant func(*faulty.Network, faulty.Match) *faulty.Fault
		cut   bool // the client sees the end of the stream, otherwise nothing
		acts  bool // Redis executes the request
	}{
		"LoseRequest": {plant: (*faulty.Network).LoseRequest},
		"CutRequest":  {plant: (*faulty.Network).CutRequest, cut: true},
		"LoseReply":   {plant: (*faulty.Network).LoseReply, acts: true},
		"CutReply":    {plant: (*faulty.Network).CutReply, acts: true, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(n *rig) {
				n.c.Options().ReadTimeout = time.Second / 5
				x := test.plant(n.faults, about("target"))
				n.must(n.set("other"))
				if struck(x) {
					n.Error("it struck another request")
				}
				err := n.set("target")
				if test.cut && !errors.Is(err, io.EOF) {
					n.Errorf("the client got %v, want EOF", err)
				}
				if !test.cut {
					n.wantTimeout(err)
				}
				n.wantKey("target", test.acts)
				if !struck(x) || replied(x) != test.acts {
					n.Errorf("struck %t, replied %t; want true, %t", struck(x), replied(x), test.acts)
				}
				n.must(n.set("target"))
			})
		})
	}
}

// In a pipeline, a request before the target gets its reply. A request after a lost one is lost
// too. After a lost reply, Redis acts on the later requests, and their replies are lost too.
func TestFaultInPipeline(t *testing.T) {
	for name, test := range map[string]struct {
		plant func(*faulty.Network, faulty.Match) *faulty.Fault
		acts  bool
	}{
		"LoseRequest": {plant: (*faulty.Network).LoseRequest},
		"LoseReply":   {plant: (*faulty.Network).LoseReply, acts: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(n *rig) {
				test.plant(n.faults, about("target"))
				c, err := n.faults.Dial(func(context.Context, string, string) (net.Conn, error) { return n.redis.Dial() })(n.ctx, "", "")
				n.must(err)
				_, err = io.WriteString(c, "*2\r\n$4\r\nINCR\r\n$5\r\nfirst\r\n*2\r\n$4\r\nINCR\r\n$6\r\ntarget\r\n*2\r\n$4\r\nINCR\r\n$4\r\nlast\r\n")
				n.must(err)
				n.must(c.SetDeadline(time.Now().Add(time.Second)))
				got, err := io.ReadAll(c)
				n.wantTimeout(err)
				if string(got) != ":1\r\n" {
					n.Errorf("the client got %q, want one reply", got)
				}
				n.wantKey("first", true)
				n.wantKey("target", test.acts)
				n.wantKey("last", test.acts)
			})
		})
	}
}

// go-redis repeats a command whose reply was cut: Redis executes it twice.
func TestFaultRetry(t *testing.T) {
	both(t, func(n *rig) {
		o := n.c.Options()
		o.MaxRetries = 1
		c := redis.NewClient(o)
		defer func() { _ = c.Close() }()
		n.faults.CutReply(nil)
		got, err := c.Incr(n.ctx, "n").Result()
		if got != 2 || err != nil {
			n.Errorf("INCR returns %d, %v; want 2", got, err)
		}
	})
}

// A held request arrives after its client has given up and repeated it on another connection.
func TestFaultHold(t *testing.T) {
	both(t, func(n *rig) {
		n.c.Options().ReadTimeout = time.Second / 5
		x := n.faults.Hold(about("k"))
		n.wantTimeout(n.c.Append(n.ctx, "k", "late").Err())
		if !struck(x) {
			n.Error("it did not strike")
		}
		n.must(n.c.Append(n.ctx, "k", "early,").Err())
		x.Deliver()
		<-x.Replied()
		if got, _ := n.redis.Get("k"); got != "early,late" {
			n.Errorf("k is %q, want the copy that was sent first to come last", got)
		}
	})
}

// A held request outlasts a silence, although its client has closed the connection.
func TestFaultHoldInSilence(t *testing.T) {
	inBubble(t, func(n *rig) {
		x := n.faults.Hold(about("k"))
		n.wantTimeout(n.set("k"))
		n.faults.Silence()
		x.Deliver()
		time.Sleep(time.Minute)
		n.wantKey("k", false)
		n.faults.Heal()
		<-x.Replied()
		n.wantKey("k", true)
	})
}

// A fault that is removed hits nothing, and a request that it held continues.
func TestFaultRemove(t *testing.T) {
	inBubble(t, func(n *rig) {
		n.faults.CutRequest(nil).Remove()
		n.must(n.set("k"))
		x := n.faults.Hold(nil)
		time.AfterFunc(time.Second, x.Remove)
		n.must(n.set("k"))
	})
}

// Nth counts the requests that its Match selects, also those that another fault hits, in both
// orders of planting.
func TestFaultOrder(t *testing.T) {
	for name, nthFirst := range map[string]bool{"Nth first": true, "Nth last": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(n *rig) {
				var first, second *faulty.Fault
				if nthFirst {
					second = n.faults.CutRequest(faulty.Nth(2, about("k")))
				}
				first = n.faults.CutReply(about("k"))
				if !nthFirst {
					second = n.faults.CutRequest(faulty.Nth(2, about("k")))
				}
				n.must(n.set("other"))
				for i, want := range []bool{false, true} {
					if err := n.set("k"); !errors.Is(err, io.EOF) {
						n.Errorf("request %d: %v, want EOF", i+1, err)
					}
					if !struck(first) || struck(second) != want {
						n.Errorf("request %d: struck %t, %t; want true, %t", i+1, struck(first), struck(second), want)
					}
				}
				n.must(n.set("k"))
			})
		})
	}
}

// scripted returns the client's end of a connection through faults, and the server's end, with
// which the test acts as Redis.
func (n *rig) scripted() (client, server net.Conn) {
	client, err := n.faults.Dial(func(context.Context, string, string) (c net.Conn, err error) {
		c, server = net.Pipe()
		return c, nil
	})(n.ctx, "tcp", "")
	n.must(err)
	n.Cleanup(func() { _ = server.Close() })
	return client, server
}

// In RESP3 a push message before the reply does not count as the reply.
func TestFaultPush(t *testing.T) {
	inBubble(t, func(n *rig) {
		client, server := n.scripted()
		say := func(to net.Conn, s string) {
			_, err := io.WriteString(to, s)
			n.must(err)
		}
		hear := func(from net.Conn, want string) {
			b := make([]byte, len(want))
			if _, err := io.ReadFull(from, b); err != nil || string(b) != want {
				n.Errorf("received %q, %v; want %q", b, err, want)
			}
		}
		const hello, subscribe, get = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
		x := n.faults.LoseReply(about("k"))
		say(client, hello+subscribe+get)
		hear(server, hello+subscribe+get)
		for _, passes := range []string{"%0\r\n", ">1\r\n+subscribe\r\n", ">1\r\n+message\r\n"} {
			say(server, passes)
			hear(client, passes)
		}
		if replied(x) {
			n.Error("a message was taken for the reply")
		}
		say(server, "$1\r\nv\r\n")
		n.must(client.SetDeadline(time.Now().Add(time.Second)))
		_, err := client.Read(make([]byte, 1))
		n.wantTimeout(err)
		if !replied(x) {
			n.Error("the reply was not taken for it")
		}
	})
}

// A cut does not wait for a Redis that does not read.
func TestNetworkCutWhileWriting(t *testing.T) {
	inBubble(t, func(n *rig) {
		client, server := n.scripted()
		_, err := client.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		n.must(err)
		synctest.Wait()
		n.faults.Cut()
		if got, err := io.ReadAll(server); len(got) > 0 || err != nil {
			n.Errorf("Redis reads %q, %v; want the end", got, err)
		}
	})
}

// On a connection that has lost a reply, the client does not see that Redis closes it.
func TestFaultMuteForEver(t *testing.T) {
	inBubble(t, func(n *rig) {
		n.faults.LoseReply(nil)
		time.AfterFunc(time.Second, n.redis.Close)
		n.wantTimeout(n.set("k"))
	})
}

// A Match finds a script by its title once its source has passed through, for EVAL and for EVALSHA,
// and by its arguments always.
func TestFaultScript(t *testing.T) {
	inBubble(t, func(n *rig) {
		s := redis.NewScript("-- bump.lua: KEYS[1]=counter, not about-this\nreturn redis.call('INCR', KEYS[1])")
		n.must(s.Run(n.ctx, n.c, []string{"n"}).Err())
		byName, byKey := n.faults.CutReply(faulty.Script("bump")), n.faults.CutReply(about("other"))
		n.must(n.set("n"))
		n.must(n.c.Del(n.ctx, "n").Err())
		if err := s.Run(n.ctx, n.c, []string{"n"}).Err(); !errors.Is(err, io.EOF) {
			n.Errorf("the script by name: %v, want EOF", err)
		}
		if err := s.Eval(n.ctx, n.c, []string{"other"}).Err(); !errors.Is(err, io.EOF) {
			n.Errorf("the script by key: %v, want EOF", err)
		}
		byText := n.faults.CutReply(about("about-this"))
		n.must(s.Eval(n.ctx, n.c, []string{"n"}).Err())
		if !struck(byName) || !struck(byKey) || struck(byText) {
			n.Errorf("struck: by name %t, by key %t, by text %t", struck(byName), struck(byKey), struck(byText))
		}
	})
}

// After a subscription in RESP2 every message is an array, and none counts as a reply.
func TestFaultSubscribed(t *testing.T) {
	inBubble(t, func(n *rig) {
		o := n.c.Options()
		o.Protocol = 2
		c := redis.NewClient(o)
		defer func() { _ = c.Close() }()
		sub := c.Subscribe(n.ctx, "c")
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(n.ctx)
		n.must(err)
		x := n.faults.LoseReply(func(r faulty.Request) bool { return r.Name == "PING" })
		n.must(sub.Ping(n.ctx))
		synctest.Wait() // the pong has arrived
		n.redis.Publish("c", "hello")
		if m, err := sub.ReceiveMessage(n.ctx); err != nil || m.Payload != "hello" {
			n.Errorf("message %v, %v", m, err)
		}
		if !struck(x) || replied(x) {
			n.Errorf("struck %t, replied %t; want true, false", struck(x), replied(x))
		}
	})
}
