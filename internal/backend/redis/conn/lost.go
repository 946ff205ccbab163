package conn

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	lostAfter  = callTimeout / 5       // how long a command has no reply before the server is asked
	quickReply = lostAfter / 2         // a server that takes longer for a reply is slow
	lateReply  = 20 * time.Millisecond // how much later than the answer of the server a reply may still arrive
	patientFor = 10 * callTimeout      // how long no reply is taken for lost after a slow one, and after a lost one
)

// cut is the value of socket.awaits after cutSilent has ended the read.
const cut = -1

// lostReplies ends the reads of replies that are lost, so that their callers send again before the
// timeout of a call. A firewall may drop a connection without notice, for example, and then no error
// shows that.
//
// If a command has no reply for lostAfter, ask sends PING on a new connection. The replies of a slow
// server arrive before the answer, because it executes commands in the order in which they arrive.
// So a reply that is still missing lateReply after a quick answer is lost, and so is its
// connection. Its read ends with the error of a timeout, which go-redis and the callers handle as
// always: the connection is closed, the command may have taken effect, and a repeat has the same id.
//
// The invariants:
//   - A repeat is sent only after the connection of the first send has ended, so at most one reply
//     is used. socket.awaits decides the race of the read with cutSilent: if the read gets data
//     first, its reply is used. If cutSilent is first, the read drops all data that arrives.
//   - A lease counts from the send whose reply is used, or from an earlier one if a ClusterClient
//     has sent the repeat. So a context still ends before its lease (I4).
//   - A slow server gets no more commands for keys. After a slow reply, and after each cut, no reply
//     of the server is taken for lost for patientFor. So a server that answers PING but delays scripts,
//     such as one after CLIENT PAUSE WRITE, gets one more command in that time.
//
// Only the first byte of a reply is awaited: WAIT of ReplicaAcks may take longer, and its script
// replies before. Renewals are not watched, because the watchdog sends them again itself, see
// socket. The connections of a client of the user are not known.
type lostReplies struct {
	endpoints    *endpoints
	patientUntil atomic.Int64 // no reply is taken for lost before that
	watching     atomic.Bool  // timer is set. A read sets awaits before it reads watching, and look does the opposite, so one of them sees the other
	timer        *time.Timer  // runs look; without reads it fires at most once more

	mu      sync.Mutex
	sockets map[*socket]struct{} // open ones
	asking  bool                 // a goroutine is asking the server
}

func newEndpoint(e *endpoints) *endpoint {
	to := &endpoint{lostReplies: lostReplies{endpoints: e, sockets: make(map[*socket]struct{})}}
	to.timer = time.AfterFunc(lostAfter, to.look) // at first there is no socket
	return to
}

func (e *endpoint) add(s *socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sockets[s] = struct{}{}
}

func (e *endpoint) remove(s *socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sockets, s)
}

// bePatient records at now that a reply was slow or lost.
func (e *endpoint) bePatient(now int64) { e.patientUntil.Store(now + int64(patientFor)) }

// watch makes look run while a read waits.
func (e *endpoint) watch() {
	if !e.watching.Load() {
		e.watchFor(lostAfter)
	}
}

func (e *endpoint) watchFor(d time.Duration) {
	if e.watching.CompareAndSwap(false, true) {
		e.timer.Reset(d)
	}
}

// look asks the server if a reply is missing for lostAfter. One goroutine asks at a time.
func (e *endpoint) look() {
	e.watching.Store(false)
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.endpoints.now()
	oldest, since := (*socket)(nil), now+1
	for s := range e.sockets {
		if at := s.awaits.Load(); at > 0 && at < since {
			oldest, since = s, at
		}
	}
	left := lostAfter - time.Duration(now-since)
	switch {
	case oldest == nil:
		return
	case left > 0:
		e.watchFor(left)
		return
	}
	e.watchFor(lostAfter)
	if !e.asking && now >= e.patientUntil.Load() {
		e.asking = true
		go e.askFor(oldest) // ends with the connection of ask, after callTimeout at most, or when the dialer of the user returns
	}
}

// askFor asks the server, and ends the reads whose replies are lost.
func (e *endpoint) askFor(s *socket) {
	answered := s.ask()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asking = false
	if now := e.endpoints.now(); answered { //planted:lost-reply-proved
		e.cutSilentLocked(now)
	} else {
		e.bePatient(now)
	}
}

// cutSilentLocked ends the reads that began before PING was sent.
func (e *endpoint) cutSilentLocked(now int64) {
	for s := range e.sockets {
		since := s.awaits.Load()
		if since > 0 && now-since > int64(quickReply+lateReply) && s.awaits.CompareAndSwap(since, cut) {
			e.suspect(since)
			e.bePatient(now) //planted:lost-reply-once
			_ = s.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// ask sends PING on a new connection, and reports whether a quick answer arrived lateReply ago. The
// answer may be an error, such as NOAUTH.
func ask(ctx context.Context, dial func(context.Context) (net.Conn, error)) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	start := time.Now()
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return false
	}
	n, _ := conn.Read(make([]byte, 64))
	return n > 0 && time.Since(start) <= quickReply && backend.Sleep(ctx, lateReply)
}
