package schedule

import "fmt"

const (
	leastSteps = 60
	moreSteps  = 90
	settling   = 60e6 // µs: each waiter gets the key in this time once no fault occurs; the longest lease is 30 s
)

// Violation is a failed check of a schedule.
type Violation struct {
	Check string // its name, see the documentation of the package
	Text  string
	Step  int // the schedule ended with it
}

func (v *Violation) Error() string { return fmt.Sprintf("%s: %s", v.Check, v.Text) }

// Run runs the schedule of a seed. It returns the number of commands, and a violation or nil.
func Run(s Server, seed uint64) (commands int, v *Violation) {
	return play(s, seed, parts{})
}

// parts says which steps of a schedule run.
type parts struct {
	skip    map[int]bool
	last    int          // the schedule stops after this step; 0: after the end
	log     func(string) // receives a trace; nil: none
	unruled bool         // the server is not compared with the rules
}

func play(s Server, seed uint64, of parts) (commands int, v *Violation) {
	w := newWorld(s, seed, of)
	step := 0
	defer func() {
		commands = w.commands
		if r := recover(); r != nil {
			found, ok := r.(violation)
			if !ok {
				panic(r)
			}
			v = &Violation{found.check, found.text, step}
		}
	}()
	for n := leastSteps + w.rnd.IntN(moreSteps); step < n; {
		if step++; !of.skip[step] {
			w.at(step)
			w.step()
			w.checkHolders()
		}
		if step == of.last {
			return 0, nil
		}
	}
	step++
	w.at(step)
	w.settle()
	return 0, nil
}

func (w *world) step() {
	switch x := w.rnd.IntN(1000); {
	case x < 200:
		w.wait()
	case x < 270:
		if len(w.late) > 0 {
			w.arrive()
		}
	case x < 310:
		if len(w.pending) > 0 {
			w.deliver(w.rnd.IntN(len(w.pending)))
		}
	case x < 325:
		w.operate(revoke)
	case x < 340:
		w.operate(clearKey)
	case x < 352:
		pick(w, w.procs).crash()
	case x < 372:
		p := pick(w, w.procs)
		p.listening = !p.listening
		w.trace("P%d listens: %v", p.n, p.listening)
		if !p.listening {
			w.rated.deaf(p.locker)
		}
	case w.jumps && x < 380:
		w.setClock()
	case w.rates && x < 390:
		pick(w, w.procs).spend()
	case w.parks && x < 550:
		pick(w, w.procs).parkOrUnpark()
	default:
		pick(w, w.procs).act()
	}
}

// wait lets time pass: often a little, sometimes until about the time at which something ends.
func (w *world) wait() {
	span := func(most int64) { w.now += 1 + w.rnd.Int64N(most) }
	switch x := w.rnd.IntN(1000); {
	case x < 350:
		span(300)
	case x < 550:
		span(60_000)
	case x < 700:
		span(1e6)
	case x < 950:
		if ends := w.ends(); len(ends) > 0 {
			w.now = max(w.now, pick(w, ends)+pick(w, []int64{-1000, -1, 0, 1, 1000, 100_000}))
			w.look()
		}
	case x < 985:
		span(70e6)
	default:
		span(26 * 3600e6)
	}
}

// ends returns times at which something ends.
func (w *world) ends() (all []int64) {
	add := func(t int64) {
		if t > w.now {
			all = append(all, t)
		}
	}
	for _, t := range w.judge.ends() {
		add(t - w.skew)
	}
	for _, p := range w.procs {
		add(p.req.nextTry)
		add(p.hold.until)
	}
	for i := range w.late {
		add(w.late[i].sent + rememberFor)
	}
	return all
}

// operate is a call of an operator, which repeats the command for a second, until a reply arrives.
func (w *world) operate(o op) {
	c, began := command{op: o, id: w.id('V')}, w.now
	var on func(*reply)
	on = func(r *reply) {
		if r == nil && w.now < began+callTimeout {
			w.send(nil, c, on)
		}
	}
	w.send(nil, c, on)
}
