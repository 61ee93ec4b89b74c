package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock/audit"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/verdict"
)

// actor is a process that claims: some share the name of another one.
type actor struct {
	who   Claimant
	pid   int
	store *Store
	world *proctest.World
}

// claimed is a handle and what the model knows of it.
type claimed struct {
	*Lease
	by *actor
}

// model is what must be so of one lease, whatever happens to it.
type model struct {
	t      *testing.T
	dir    string
	began  time.Time
	actors []*actor
	pids   int // the last one given out
	claims []*claimed
	now    *claimed      // whose claim it is; nil: nobody's
	beat   time.Duration // boot-time clock at its last renewal
	last   uint64        // the largest epoch that was given out
	owners map[uint64]string

	log         *audit.Log
	broken      *claimed // by the last removal; nil: there was none
	brokenBeat  time.Duration
	brokenEntry audit.Entry
}

func (m *model) boot() time.Duration { return time.Hour + time.Since(m.began) }

// spawn gives an actor a process of its own that all others see.
func (m *model) spawn(a *actor) {
	m.pids++
	a.pid = m.pids
	born := proctest.Proc{PID: a.pid, Start: uint64(a.pid) * 10, PidfdIno: uint64(a.pid) * 7, Name: a.who.Owner}
	a.world = proctest.NewWorld(machine(func(mc *proctest.Machine) {
		mc.BootAt, mc.PID, mc.Procs = m.began.Add(-time.Hour), a.pid, nil
		for _, o := range m.actors {
			if o != a {
				mc.Procs = append(mc.Procs, proctest.Proc{PID: o.pid, Start: uint64(o.pid) * 10, PidfdIno: uint64(o.pid) * 7, Name: o.who.Owner})
			}
		}
		mc.Procs = append(mc.Procs, born)
	}))
	a.store = &Store{Dir: m.dir, Table: a.world.Table(), sinceBoot: m.boot}
	for _, o := range m.actors {
		if o != a {
			o.world.Change(func(mc *proctest.Machine) { mc.Procs = append(mc.Procs, born) })
		}
	}
}

// kill ends an actor's process; it comes back as another one.
func (m *model) kill(a *actor) {
	for _, o := range m.actors {
		o.world.Kill(a.pid)
	}
	m.spawn(a)
}

func (m *model) expired() bool { return m.boot()-m.beat > verdict.LeaseTTL }

// holderRuns says whether the process that holds the lease is still its actor's.
func (m *model) holderRuns() bool { return m.now.by.store == m.now.store }

// refuses says whether a claim must be refused, and whether a granted one keeps the epoch.
func (m *model) refuses(a *actor) (refused, keeps bool) {
	if m.now == nil {
		return false, false
	}
	holds := m.now.by
	sameOwner := holds.who.Owner == a.who.Owner
	sameBlock := sameOwner && holds.who.Block == a.who.Block
	switch {
	case sameBlock && holds == a && m.holderRuns():
		return false, true
	case m.expired():
		return false, false
	case sameOwner && !sameBlock:
		return true, false // without asking whether its process runs
	default:
		return m.holderRuns(), false
	}
}

func (m *model) claim(t *rapid.T, a *actor) {
	refused, keeps := m.refuses(a)
	l, err := a.store.Claim(m.t.Context(), agent, a.who)
	if refused {
		if !errors.Is(err, ErrHeld) {
			t.Fatalf("%s is not refused: %v", a.who.Owner, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s is refused: %v", a.who.Owner, err)
	}
	switch {
	case keeps && l.Epoch() != m.last:
		t.Fatalf("its own lease came back with epoch %d instead of %d", l.Epoch(), m.last)
	case !keeps && l.Epoch() <= m.last:
		t.Fatalf("epoch %d after %d", l.Epoch(), m.last)
	}
	m.last = l.Epoch()
	who := fmt.Sprint(a.who.Owner, "/", a.who.Block, "/", a.pid)
	if before, ok := m.owners[m.last]; ok && before != who {
		t.Fatalf("epoch %d was given to %s and to %s", m.last, before, who)
	}
	m.owners[m.last] = who
	m.now, m.beat = &claimed{l, a}, m.boot()
	m.claims = append(m.claims, m.now)
}

// use tries a handle that may be old: only the one that counts may do anything.
func (m *model) use(t *rapid.T, c *claimed, do string) {
	var err error
	switch do {
	case "renew":
		if err = c.Renew(m.t.Context()); c == m.now {
			m.beat = m.boot()
		}
	case "verify":
		err = c.Verify(m.t.Context())
	case "release":
		if err = c.Release(); err != nil {
			t.Fatalf("release: %v", err)
		}
		if c == m.now {
			m.now = nil
		}
		return
	}
	if c == m.now && err != nil || c != m.now && !errors.Is(err, ErrLost) {
		t.Fatalf("%s of epoch %d, the one that counts is %v: %v", do, c.Epoch(), c == m.now, err)
	}
}

// breaks lets an actor remove the lease, whoever has it. Unforced only what any claimant would be granted goes.
func (m *model) breaks(t *rapid.T, a *actor, force bool) {
	info, err := a.store.Inspect(agent)
	if err != nil {
		t.Fatal(err)
	}
	err = a.store.Break(m.t.Context(), info, Removal{Reason: "random", Force: force, Log: m.log})
	switch free := m.now == nil || m.expired() || !m.holderRuns(); {
	case m.now == nil && !errors.Is(err, ErrChanged), m.now != nil && !force && !free && !errors.Is(err, ErrNotYet),
		m.now != nil && (force || free) && err != nil:
		t.Fatalf("forced %v, free %v, held %v: %v", force, free, m.now != nil, err)
	case err != nil:
		return
	}
	m.broken, m.brokenBeat, m.now = m.now, m.beat, nil
	m.brokenEntry, _, err = m.log.LastAct(info.Path)
	if err != nil {
		t.Fatal(err)
	}
}

// restore puts back what was removed last, which must fail once an epoch was given out since.
func (m *model) restore(t *rapid.T, a *actor) {
	if m.broken == nil {
		t.Skip("nothing was removed")
	}
	err := a.store.Restore(m.t.Context(), m.brokenEntry, Removal{Log: m.log})
	if may := m.now == nil && m.last == m.broken.Epoch(); may != (err == nil) || err != nil && !errors.Is(err, ErrChanged) {
		t.Fatalf("held %v, epoch %d of %d: %v", m.now != nil, m.broken.Epoch(), m.last, err)
	}
	if err == nil {
		m.now, m.beat, m.broken = m.broken, m.brokenBeat, nil
		if err := a.store.Restore(m.t.Context(), m.brokenEntry, Removal{Log: m.log}); !errors.Is(err, ErrChanged) {
			t.Fatalf("put back twice: %v", err)
		}
	}
}

// check looks at the lease as each actor sees it, and at the disk.
func (m *model) check(t *rapid.T) {
	_, err := os.Lstat(m.actors[0].store.path(agent, leaseSuffix))
	if (err == nil) != (m.now != nil) {
		t.Fatalf("the file is there: %v, somebody holds it: %v", err == nil, m.now != nil)
	}
	for _, a := range m.actors {
		info, err := a.store.Inspect(agent)
		if err != nil {
			t.Fatal(err)
		}
		state, live := info.Verdict.State, false
		switch {
		case m.now == nil:
			live = state == verdict.Free
		case !m.holderRuns():
			live = state == verdict.Dead
		case m.expired():
			live = state == verdict.Expired
		default:
			live = state == verdict.Live || state == verdict.Late
		}
		if !live {
			t.Fatalf("seen by %s: %v: %s", a.who.Owner, state, info.Verdict.Sentence)
		}
		if m.now != nil && info.Facts.Record.ClaimID != m.now.ClaimID() {
			t.Fatalf("an old claim has overwritten the newest")
		}
		// One judge for showing and for acting: who is nobody's twin is refused unless it says now.
		if stranger := (&actor{who: other("nobody")}); info.Verdict.Claimable.When == verdict.Now {
			if refused, _ := m.refuses(stranger); refused && m.now.by.who.Owner != "nobody" {
				t.Fatalf("shown as claimable: %s", info.Verdict.Sentence)
			}
		}
	}
}

// TestWhateverHappensOneClaimCounts runs random lives of one lease in fake time.
func TestWhateverHappensOneClaimCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, lives := t.TempDir(), 0
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			lives++
			dir := filepath.Join(parent, strconv.Itoa(lives))
			if err := os.Mkdir(dir, 0o700); err != nil {
				rt.Fatal(err)
			}
			m := &model{t: t, dir: dir, began: time.Now(), pids: 2000, owners: map[uint64]string{}}
			m.log = &audit.Log{Path: filepath.Join(parent, "audit", strconv.Itoa(lives)+".jsonl")}
			for _, who := range []Claimant{
				{Owner: "a", Block: "1"}, {Owner: "a", Block: "1"}, {Owner: "a", Block: "2"}, {Owner: "b", Block: "1"},
			} {
				a := &actor{who: who}
				m.spawn(a)
				m.actors = append(m.actors, a)
			}
			anybody := func(rt *rapid.T) *actor { return m.actors[rapid.IntRange(0, len(m.actors)-1).Draw(rt, "actor")] }
			handle := func(do string) func(*rapid.T) {
				return func(rt *rapid.T) {
					if len(m.claims) == 0 {
						rt.Skip("nothing was claimed yet")
					}
					// Mostly the latest ones.
					back := rapid.IntRange(1, min(4, len(m.claims))).Draw(rt, "handle")
					m.use(rt, m.claims[len(m.claims)-back], do)
				}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"claim":   func(rt *rapid.T) { m.claim(rt, anybody(rt)) },
				"claim2":  func(rt *rapid.T) { m.claim(rt, anybody(rt)) },
				"renew":   handle("renew"),
				"verify":  handle("verify"),
				"release": handle("release"),
				"kill":    func(rt *rapid.T) { m.kill(anybody(rt)) },
				"break":   func(rt *rapid.T) { m.breaks(rt, anybody(rt), rapid.Bool().Draw(rt, "force")) },
				"restore": func(rt *rapid.T) { m.restore(rt, anybody(rt)) },
				"wait": func(rt *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond)
				},
				"restore the counter": func(rt *rapid.T) {
					if m.now == nil {
						rt.Skip("the counter alone knows the last epoch")
					}
					text := rapid.SampledFrom([]string{"0\n", "1\n", "x", ""}).Draw(rt, "counter")
					if err := os.WriteFile(m.actors[0].store.path(agent, counterSuffix), []byte(text), 0o600); err != nil {
						rt.Fatal(err)
					}
				},
				"": m.check,
			})
		})
	})
}

// bubble hides the deadline of a test, for which nothing in fake time may ask.
type bubble struct{ rapid.TB }
