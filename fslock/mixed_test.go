//go:build linux

package fslock

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// cast is who plays in a world.
type cast struct {
	rules  rules
	actors []string // kind@host; each has one process at a time
	waits  bool     // ours also wait by Acquire, whose pauses are a matter of chance
	people bool     // a token of which nobody can tell goes by a person's hand in the end
	brief  bool     // a dead lock and a dead token are there, all go for them at once, and nothing else happens but kills
}

// inPlayTime runs f in fake time, and hands on how it ended: a goroutine of a bubble has nobody who would catch it.
func inPlayTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	var ended any
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		defer func() { ended = recover() }()
		synchronise(real)
		f(t)
	})
	if ended != nil {
		panic(ended)
	}
}

// worlds is how many are played by each test. More, and all different, by
//
//	go test ./fslock -run TestOurs -rapid.checks 5000 -timeout 1h
const worlds = 5

// play lets rapid choose who takes the next step, and what happens beside.
func (c cast) play(t *testing.T, steps int) {
	t.Helper()
	left := worlds
	switch {
	case c.brief:
		left *= 4
	case !c.rules.fatal:
		left /= 2 // they live for minutes
	}
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() != f.DefValue {
		left = math.MaxInt
	}
	rapid.Check(t, func(r *rapid.T) {
		if left--; left < 0 {
			return
		}
		dir := t.TempDir()
		var bad string
		var trace []string
		inPlayTime(t, func(t *testing.T) {
			w := newWorld(dir, t.Context(), c.rules)
			defer w.end()
			c.begin(r, w)
			for range steps {
				if w.bad != "" {
					break
				}
				c.next(r, w)
			}
			if c.brief {
				c.calm(w)
			}
			if w.bad == "" {
				c.finish(w)
			}
			bad, trace = w.bad, w.trace
		})
		if bad != "" {
			left = math.MaxInt // it is played again till it is short
			r.Fatalf("%s\n%s", bad, strings.Join(trace, "\n"))
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	})
}

// leave puts there what an earlier process may have left.
func leave(w *world, path, what string) error {
	rec := &record.Lock{
		PID: 99, Hostname: "here", ProcessStartTime: new(uint64(99)), BootID: new("boot-here"),
		CreatedAtMS: ms(-time.Minute), HeartbeatAtMS: ms(-time.Minute), WriterEpoch: "99-1",
	}
	data := rec.Encode()
	switch what {
	case "nothing":
		return nil
	case "torn":
		data = data[:40]
	case "empty":
		data = nil
	}
	w.log("%s is there, %s", filepath.Base(path), what)
	return os.WriteFile(path, data, 0o600)
}

func (c cast) spawn(w *world, actor string) {
	kind, host, _ := strings.Cut(actor, "@")
	w.spawn(kind, host)
}

// begin puts there what earlier processes may have left, then starts the actors.
func (c cast) begin(r *rapid.T, w *world) {
	for i, path := range []string{w.path, w.token()} {
		left := "dead"
		if !c.brief {
			left = rapid.SampledFrom([]string{"nothing", "dead", "dead", "torn", "empty"}).Draw(r, []string{"lock", "token"}[i])
		}
		if err := leave(w, path, left); err != nil {
			r.Fatal(err)
		}
	}
	for _, actor := range c.actors {
		c.spawn(w, actor)
	}
	w.settle()
}

func (c cast) next(r *rapid.T, w *world) {
	if c.brief && rapid.IntRange(0, 15).Draw(r, "kill") > 0 {
		c.steps(r, w)
		return
	}
	what := 61
	if !c.brief {
		what = rapid.IntRange(0, 63).Draw(r, "what")
	}
	switch {
	case what < 54:
		c.steps(r, w)
	case what < 58:
		w.pass(time.Duration(rapid.IntRange(1, 300).Draw(r, "ms")) * time.Millisecond)
	case what == 58:
		w.pass(time.Duration(rapid.IntRange(1, 20).Draw(r, "s")) * time.Second)
	case what == 59:
		w.pass(time.Duration(rapid.IntRange(61, 100).Draw(r, "s")) * time.Second)
	case what == 60:
		d := rapid.IntRange(1, 5).Draw(r, "s")
		if !c.rules.fatal && rapid.IntRange(0, 3).Draw(r, "long") == 0 {
			d += 95 // so that another machine takes it for dead, and watches it for long enough
		}
		w.live(time.Duration(d) * time.Second)
	case what == 61:
		p := rapid.SampledFrom(w.living()).Draw(r, "who")
		w.kill(p)
		i := strings.LastIndexByte(p.name, '@')
		kind, _, _ := strings.Cut(p.name, "-")
		c.spawn(w, kind+p.name[i:])
		w.settle()
	default:
		p := rapid.SampledFrom(w.living()).Draw(r, "who")
		p.stopped = !p.stopped
		w.log("-- %s is stopped: %v", p.name, p.stopped)
		w.publish()
	}
}

// steps lets one goroutine take a few steps.
func (c cast) steps(r *rapid.T, w *world) {
	list := w.runnable()
	if len(list) == 0 {
		w.pass(50 * time.Millisecond)
		return
	}
	k := list[rapid.IntRange(0, len(list)-1).Draw(r, "who")]
	most := 8
	if c.brief {
		most = 14
	}
	for range rapid.IntRange(1, most).Draw(r, "steps") {
		o := orderGo
		switch {
		case k.at == holding:
			o = rapid.SampledFrom([]order{orderRelease, orderVerify}).Draw(r, "holder")
		case k.at != idle:
		case k.p.locker == nil:
			o = rapid.SampledFrom([]order{orderTry, orderWait, orderClear}).Draw(r, "original")
		case c.waits:
			o = rapid.SampledFrom([]order{orderTry, orderWait}).Draw(r, "ours")
		}
		w.run(k, o)
		var next *parked
		for _, other := range w.runnable() {
			if other.p == k.p {
				next = other
			}
		}
		if k = next; k == nil || w.bad != "" {
			return
		}
	}
}

// calm lets everybody come to the end of what it does, and see whether it has the lock.
func (c cast) calm(w *world) {
	for _, p := range w.living() {
		w.attempt(p, orderGo)
	}
	for _, p := range w.living() {
		if p.holding {
			w.until(p, holding, orderVerify)
		}
	}
}

// finish kills everybody and sees that one of ours gets the lock, and that nothing is left that nobody can explain.
func (c cast) finish(w *world) {
	for _, p := range w.living() {
		w.kill(p)
	}
	w.mu.Lock()
	w.free = true
	w.mu.Unlock()
	w.settle()
	var fresh []*Locker
	for _, name := range []string{"here", "there"} {
		w.pids++
		fresh = append(fresh, w.locker(w.hosts[name], w.pids, func(string, string) error { return nil }))
	}
	if !c.people {
		fresh = fresh[:1]
	}
	var lock *Lock
	var err error
	began := time.Now()
	for lock == nil && time.Since(began) < 5*time.Minute {
		for _, l := range fresh {
			if lock, err = l.TryAcquire(w.path); err == nil {
				break
			}
		}
		time.Sleep(time.Second)
		w.settle()
	}
	if lock == nil {
		w.fail("everybody is dead, and still: %v", err)
		return
	}
	w.log("-- all are dead, and the lock is taken after %v", time.Since(began))
	if err := lock.Verify(); err != nil {
		w.fail("the last of all: %v", err)
	}
	if err := lock.Release(); err != nil {
		w.fail("the last of all: %v", err)
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.fail("%v", err)
	}
	for _, e := range entries {
		path := filepath.Join(w.dir, e.Name())
		switch _, pid, temp := record.ParseTemp(e.Name()); {
		case temp && pid == uint32(os.Getpid()) || temp && c.people: // ours carry the number of the test's process
		case temp:
			if v := fresh[0].InspectTemp(path).Verdict; v.State != verdict.Litter {
				w.fail("%s is left, and %v: %s", e.Name(), v.State, v.Sentence)
			}
		case path == w.token():
			if tok := fresh[0].InspectToken(path).Token; tok.State != verdict.Dead && tok.State != verdict.Malformed && !c.people {
				w.fail("a token is left, and %v", tok.State)
			}
		case e.Name() == guardName("cache.lock") && c.rules.notLocal:
		default:
			w.fail("%s is left", e.Name())
		}
	}
}

var ( // the casts of the tests
	oursAlone = []string{"ours@here", "ours@here", "ours@here"}
	mixed     = []string{"ours@here", "old@here", "ours@here", "new@here"}
	twoHosts  = []string{"ours@here", "ours@there", "ours@here"}
	allKinds  = []string{"ours@here", "old@there", "ours@there", "new@here"}
)

// What an original does in two steps where nothing keeps another process out of the gap.
var gaps = []string{gapMalformedLock, gapMalformedToken}

func TestOursAloneOnTwoMachines(t *testing.T) {
	cast{actors: twoHosts, rules: rules{notLocal: true}, people: true}.play(t, 150)
}

func TestOursWithOriginals(t *testing.T) {
	cast{actors: mixed, rules: rules{fatal: true, whole: gaps}}.play(t, 200)
}

func TestOursWithOriginalsOnTwoMachines(t *testing.T) {
	cast{actors: allKinds, rules: rules{notLocal: true, whole: gaps, late: true}, people: true}.play(t, 120)
}

func TestOursThatWaitWithOriginals(t *testing.T) {
	cast{actors: mixed, rules: rules{fatal: true, whole: gaps}, waits: true}.play(t, 200)
}

func TestOursAloneExcludeEachOther(t *testing.T) {
	for _, notLocal := range []bool{false, true} {
		t.Run(fmt.Sprint("guard file ", notLocal), func(t *testing.T) {
			cast{actors: oursAlone, rules: rules{fatal: true, notLocal: notLocal}}.play(t, 150)
		})
	}
}

func TestOursThatTakeOverAtOnce(t *testing.T) {
	for _, notLocal := range []bool{false, true} {
		t.Run(fmt.Sprint("guard file ", notLocal), func(t *testing.T) {
			cast{actors: oursAlone[:2], rules: rules{fatal: true, notLocal: notLocal, coarse: true}, brief: true}.play(t, 12)
		})
	}
}

func TestOursThatTakeOverAtOnceWithOriginals(t *testing.T) {
	for what, actors := range map[string][]string{"one": mixed[:2], "two": mixed, "two machines": allKinds} {
		t.Run(what, func(t *testing.T) {
			r := rules{fatal: true, whole: gaps, coarse: true, notLocal: what == "two machines"}
			cast{actors: actors, rules: r, brief: true, people: r.notLocal}.play(t, 16)
		})
	}
}

// Two go for a dead lock with a dead token: the first gets to each of its steps, then the second to each of its own, then
// both come to their end.
func TestTwoTakeOversByTurns(t *testing.T) {
	for _, pair := range [][2]string{{"ours", "ours"}, {"new", "ours"}, {"ours", "old"}} {
		for _, notLocal := range []bool{false, true} {
			if notLocal && pair != [2]string{"ours", "ours"} {
				continue // originals know neither guard
			}
			t.Run(fmt.Sprintf("%s and %s, guard file %v", pair[0], pair[1], notLocal), func(t *testing.T) {
				more := true
				for i := 1; more; i++ {
					for j := 1; more; j++ {
						if more = byTurns(t, pair, notLocal, i, j); t.Failed() {
							return
						}
					}
					more = byTurns(t, pair, notLocal, i, 0)
				}
			})
		}
	}
}

// byTurns is false when who makes the last steps has not so many. Without any of the second's, that is the first.
func byTurns(t *testing.T, pair [2]string, notLocal bool, first, second int) (more bool) {
	t.Helper()
	dir := t.TempDir()
	inPlayTime(t, func(t *testing.T) {
		w := newWorld(dir, t.Context(), rules{fatal: true, notLocal: notLocal, coarse: true})
		defer w.end()
		for _, path := range []string{w.path, w.token()} {
			if err := leave(w, path, "dead"); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		a, b := w.spawn(pair[0], "here"), w.spawn(pair[1], "here")
		w.settle()
		more = w.advance(a, first)
		if second > 0 {
			more = w.advance(b, second)
		}
		cast{}.calm(w)
		if !a.holding && !b.holding {
			w.attempt(a, orderTry)
			if !a.holding && a.locker != nil {
				w.fail("nobody has it, and still %s does not get it", a.name)
			}
		}
		if w.bad != "" {
			t.Errorf("%s\n%s", w.bad, strings.Join(w.trace, "\n"))
		}
	})
	return more
}

// What the schedules of the tests above leave out, each once: were it let in, two would hold the lock. Should one of these
// fail, then originals can no longer do this to us, or the world does not see it.
func TestLimitsOfMixedUse(t *testing.T) {
	for _, tc := range []struct {
		what        string
		lock, token string
		actors      [2]string // an original and ours
		act         func(w *world, original, ours *process)
	}{
		{
			"removes a malformed lock that has become another's", "torn", "nothing",
			[2]string{"old@here", "ours@here"},
			func(w *world, original, ours *process) {
				w.until(original, gapMalformedLock, orderWait)
				w.pass(16 * time.Second)
				w.until(ours, holding, orderTry)
			},
		},
		{
			"stalls over a minute before its token is written", "dead", "nothing",
			[2]string{"new@here", "ours@here"},
			func(w *world, original, ours *process) {
				w.until(original, "write half of the token", orderTry)
				original.since = time.Time{} // so that time may pass
				w.pass(61 * time.Second)
				w.until(ours, "reread", orderTry)
				w.until(original, gapLock, orderGo)
				w.until(ours, holding, orderGo)
			},
		},
		{
			"replaces the lock after a silence in its heartbeat", "nothing", "nothing",
			[2]string{"old@there", "ours@here"},
			func(w *world, original, ours *process) {
				w.until(original, holding, orderTry)
				w.pass(6 * time.Second)
				for _, k := range w.waiting() {
					if k.p == original && k.at != holding {
						w.run(k, orderGo) // it compares
					}
				}
				w.pass(76 * time.Second)
				original.stopped = true
				w.live(20 * time.Second)
				original.stopped = false
				for _, k := range w.runnable() {
					if k.p == original && k.at != holding {
						w.run(k, orderGo)
					}
				}
				for _, k := range w.runnable() {
					if k.p == original && k.at != holding {
						w.run(k, orderGo)
					}
				}
				w.until(original, holding, orderVerify)
			},
		},
		{
			"releases what has become another's after a silence", "nothing", "nothing",
			[2]string{"new@there", "ours@here"},
			func(w *world, original, ours *process) {
				w.until(original, holding, orderTry)
				w.until(original, "remove the own lock", orderRelease)
				original.stopped = true
				w.pass(76 * time.Second)
				w.live(20 * time.Second)
				original.stopped = false
			},
		},
	} {
		t.Run(tc.what, func(t *testing.T) {
			dir := t.TempDir()
			inPlayTime(t, func(t *testing.T) {
				w := newWorld(dir, t.Context(), rules{notLocal: true})
				defer w.end()
				for path, what := range map[string]string{w.path: tc.lock, w.token(): tc.token} {
					if err := leave(w, path, what); err != nil {
						t.Fatal(err)
					}
				}
				w.settle()
				var ps [2]*process
				for i, actor := range tc.actors {
					kind, host, _ := strings.Cut(actor, "@")
					ps[i] = w.spawn(kind, host)
				}
				w.settle()
				tc.act(w, ps[0], ps[1])
				if w.bad == "" && ps[1].holding {
					// What ours holds is removed now, and the next one finds a free lock.
					w.until(ps[0], idle, orderGo)
					w.until(ps[0], holding, orderTry)
				}
				if !strings.HasSuffix(w.bad, "which "+ps[1].name+" holds") {
					t.Errorf("it does not come to this: %s\n%s", w.bad, strings.Join(w.trace, "\n"))
				}
			})
		})
	}
}

// An original that has compared a dead token removes the token of ours that has taken its place meanwhile, and is at
// work on the lock at the same time.
func TestOneHoldsItWhenAnOriginalRemovesOurToken(t *testing.T) {
	// All are about to remove the dead lock.
	begin := func(w *world, original, ours *process) {
		w.until(original, gapDeadToken, orderTry)
		w.until(ours, "reread", orderTry)
		w.until(original, gapLock, orderGo)
	}
	for _, tc := range []struct {
		what string
		act  func(w *world, original, ours, other *process) bool // true: one of ours must have it
	}{
		{"while it is about to remove ours", func(w *world, original, ours, _ *process) bool {
			begin(w, original, ours)
			w.attempt(ours, orderGo)
			return false
		}},
		{"which it does before ours looks for its token", func(w *world, original, ours, _ *process) bool {
			begin(w, original, ours)
			w.until(ours, "published", orderGo)
			w.until(ours, "clock", orderGo)
			w.run(w.waitingOf(ours), orderGo)
			w.lead(ours, orderGo, "clock", idle) // it has seen its file under the name, or the token
			w.until(original, "make a temp", orderGo)
			w.attempt(ours, orderGo)
			return false
		}},
		{"while one of ours on another machine takes the free lock", func(w *world, original, ours, other *process) bool {
			begin(w, original, ours)
			w.until(ours, "removed", orderGo)
			w.attempt(other, orderTry)
			return false
		}},
		{"after ours has compared the dead lock", func(w *world, original, ours, _ *process) bool {
			w.until(ours, "compared", orderTry) // the token
			w.until(ours, "compared", orderGo)
			w.attempt(original, orderTry)
			w.attempt(ours, orderGo)
			return true
		}},
		{"when ours has got the lock", func(w *world, original, ours, _ *process) bool {
			w.until(original, gapDeadToken, orderTry)
			w.attempt(ours, orderTry)
			w.attempt(original, orderGo)
			return true
		}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			dir := t.TempDir()
			inPlayTime(t, func(t *testing.T) {
				w := newWorld(dir, t.Context(), rules{notLocal: true, fatal: true})
				defer w.end()
				for _, path := range []string{w.path, w.token()} {
					if err := leave(w, path, "dead"); err != nil {
						t.Fatal(err)
					}
				}
				w.settle()
				original, ours, other := w.spawn("new", "here"), w.spawn("ours", "here"), w.spawn("ours", "there")
				w.settle()
				want := tc.act(w, original, ours, other)
				has := ours.holding || other.holding
				first := orderGo
				if w.waitingOf(original).at == idle {
					first = orderTry
				}
				if w.attempt(original, first) == has {
					w.fail("one of ours has it: %v, the original has it: %v", has, !has)
				}
				for _, p := range w.procs {
					if p.holding {
						w.until(p, holding, orderVerify)
						w.until(p, idle, orderRelease)
					}
				}
				if !w.attempt(ours, orderTry) {
					w.fail("ours does not get it later")
				}
				if w.bad != "" || has != want {
					t.Errorf("%s; ours has it: %v\n%s", w.bad, has, strings.Join(w.trace, "\n"))
				}
			})
		})
	}
}
