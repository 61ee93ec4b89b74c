//go:build linux

package fslock

import (
	"os"
	"runtime"
	"slices"
	"time"

	"holdfast/fslock/record"
)

// stop is pause for one of ours.
func (p *process) stop(step, path string) error {
	switch step {
	case "releasing":
		switch {
		case p.w.rules.late && !p.linked && time.Since(p.beat) > staleAfter:
			return nil // a stop and an unguarded release
		case p.linked && p.w.anyOriginalAt(gapLock):
			return nil // it takes back what that original is about to remove
		}
	case "freshened":
		p.beat = time.Now()
	case "compared":
		if p.atOnce(path) {
			return nil
		}
	}
	p.pause(step)
	p.linked = p.linked || step == "published"
	return nil
}

// atOnce reports whether ours remove what they have just compared before anybody else takes a step. That gap is a limit
// that the package tells, except for the lock of a holder that is proven dead, which keeps out everybody else by guard
// and token; and, where originals work, for the token itself.
func (p *process) atOnce(path string) bool {
	w := p.w
	rec := readRecord(w.path)
	if path == w.path && rec != nil && (rec.Hostname != p.host.name || w.alive(rec)) {
		return true // it beats, or releases without the guard after it was waited for in vain
	}
	if !w.originals() {
		return false
	}
	// An original that has compared a dead token removes ours; one that makes a token while ours lies there gives way.
	t := readRecord(w.token())
	kept := t != nil && t.PID == uint32(p.pid) && !w.anyOriginalAt(gapDeadToken)
	return !kept || path == w.path && rec == nil
}

// readRecord takes no time; nil: none is there, or none that parses.
func readRecord(path string) *record.Lock {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	rec, err := record.DecodeLock(path, data)
	if err != nil {
		return nil
	}
	return &rec
}

func (w *world) originals() bool {
	return slices.ContainsFunc(w.procs, func(p *process) bool { return p.aft != nil })
}

func (w *world) anyOriginalAt(step string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.parked, func(k *parked) bool { return k.p.aft != nil && !k.p.dead && k.at == step })
}

// step is pause for an original, which ends there when the world does.
func (p *process) step(next string) {
	w := p.w
	w.mu.Lock()
	stops := p.dead || !slices.Contains(w.rules.whole, next)
	if stops {
		p.half = next == "write the rest of the token" || p.half && next == "write half of the token"
		switch next {
		case "write half of the token":
			p.since, p.half = time.Now(), true
		case "write the rest of the token", "compare the lock", gapLock:
		default:
			p.since = time.Time{}
		}
	}
	w.mu.Unlock()
	if stops {
		p.pause(next)
	}
	if !w.isOver() && (next == gapDeadToken || next == gapLock) {
		p.rob(next)
	}
	if w.isOver() {
		runtime.Goexit()
	}
}

// rob sees whose file it is that an original is about to remove. Two originals that do it to each other are their own
// business, but what comes of it befalls ours: whoever would, dies.
func (p *process) rob(next string) {
	w := p.w
	path := w.path
	if next == gapDeadToken {
		path = w.token()
	}
	rec := readRecord(path)
	if rec == nil {
		return
	}
	for _, q := range w.procs {
		switch {
		case q == p || q.dead || uint32(q.pid) != rec.PID || q.silent():
		case q.aft != nil:
			w.kill(p)
			p.pause(next)
		case next == gapDeadToken:
			q.robbed = true
		}
	}
}

// until lets one process go on until it is about to take a step, whatever it is told first.
func (w *world) until(p *process, at string, first order) {
	if !w.lead(p, first, at) {
		w.fail("%s never comes to: %s", p.name, at)
	}
}

// attempt lets one process try once, or go on with that; the answer is whether it has the lock.
func (w *world) attempt(p *process, first order) bool {
	if !w.lead(p, first, idle, holding) {
		w.fail("%s comes to no end", p.name)
	}
	return p.holding
}

// advance lets one process begin to take the lock and come so many steps far; false: it has ended before.
func (w *world) advance(p *process, steps int) bool {
	for i := range steps {
		o := orderGo
		if i == 0 {
			o = orderTry
		}
		k := w.waitingOf(p)
		for ; k == nil; k = w.waitingOf(p) {
			time.Sleep(time.Millisecond)
			w.settle()
		}
		if i > 0 && (k.at == idle || k.at == holding) {
			return false
		}
		w.run(k, o)
	}
	return true
}

func (w *world) lead(p *process, first order, to ...string) bool {
	for range 3000 {
		all := w.waiting()
		i := slices.IndexFunc(all, func(k *parked) bool { return k.p == p })
		if i < 0 {
			time.Sleep(time.Millisecond)
			w.settle()
			continue
		}
		k := all[i]
		if first == orderGo && (slices.Contains(to, k.at) || w.bad != "") {
			return true
		}
		o := orderGo
		if k.at == idle || k.at == holding {
			o, first = first, orderGo
		}
		w.run(k, o)
	}
	return false
}

// waitingOf is where a process stops; its heartbeat aside.
func (w *world) waitingOf(p *process) *parked {
	for _, k := range w.waiting() {
		if k.p == p {
			return k
		}
	}
	return nil
}
