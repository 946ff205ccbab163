package watermill_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/holdfast-go/holdfast/examples/frameworks/watermill"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/locktest"
)

// A message is delivered three times, the first run fails, and the publication of the result fails
// once. The order is placed once, and each delivery after that publishes the same event. Another
// body with the same key, and a failure that is final, go to the poison queue.
func TestOnce(t *testing.T) {
	locks := locktest.New(t)
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	poison, err := middleware.PoisonQueueWithFilter(channel, "poison", watermill.Permanent)
	if err != nil {
		t.Fatal(err)
	}
	key := func(m *message.Message) string { return "order:" + m.Metadata.Get("order") }
	router.AddMiddleware(poison, watermill.Once(locks, key, guard.OnceOptions{}))
	runs := map[string]int{} // the router runs the handler for one message at a time: each waits for its acknowledgment
	flaky := &publisher{Publisher: channel, failures: 1}
	router.AddHandler("place", "orders", channel, "placed", flaky, func(m *message.Message) ([]*message.Message, error) {
		order := m.Metadata.Get("order")
		runs[order]++
		guard.MustHold(m.Context(), key(m))
		switch {
		case order == "8":
			return nil, guard.Final(errors.New("no such product"))
		case runs[order] == 1:
			return nil, errors.New("the database is away")
		}
		out := message.NewMessage("event-"+order, m.Payload)
		out.Metadata.Set("order", order)
		return []*message.Message{out}, nil
	})
	placed, err := channel.Subscribe(t.Context(), "placed")
	if err != nil {
		t.Fatal(err)
	}
	poisoned, err := channel.Subscribe(t.Context(), "poison")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- router.Run(ctx) }() // ends when ctx does
	<-router.Running()

	send := func(order, body string) {
		t.Helper()
		m := message.NewMessage("delivery", []byte(body))
		m.Metadata.Set("order", order)
		if err := channel.Publish("orders", m); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		send("7", "one lamp")
		m := await(t, placed)
		if m.UUID != "event-7" || m.Metadata.Get("order") != "7" || string(m.Payload) != "one lamp" {
			t.Errorf("published %s, %v, %q", m.UUID, m.Metadata, m.Payload)
		}
	}
	for _, message := range [][2]string{{"7", "two lamps"}, {"8", "a unicorn"}} {
		send(message[0], message[1])
		if m := await(t, poisoned); string(m.Payload) != message[1] {
			t.Errorf("poisoned %q, want %q", m.Payload, message[1])
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if runs["7"] != 2 || runs["8"] != 1 || flaky.failures != 0 {
		t.Errorf("runs: %v, want one failed run and one more of order 7, and one of order 8", runs)
	}
}

// publisher fails a number of times.
type publisher struct {
	message.Publisher

	failures int
}

func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	if p.failures > 0 {
		p.failures--
		return errors.New("the broker is away")
	}
	return p.Publisher.Publish(topic, messages...)
}

func await(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m := <-messages:
		m.Ack()
		return m
	case <-time.After(time.Minute):
		t.Fatal("no message")
		return nil
	}
}
