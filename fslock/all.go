package fslock

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Infos is a look at many files, each list in the order in which its paths were given.
type Infos struct {
	Locks  []Info
	Tokens []TokenInfo
	Temps  []TempInfo
}

// maxWorkers bounds the goroutines of one InspectAll: the work is system calls on one disk.
const maxWorkers = 8

// InspectAll looks at many locks, tokens and temps: for each what Inspect, InspectToken and InspectTemp give, with one
// look at the process table for all. The verdicts are without Evidence, Originals and Next, which Judge of the Facts
// tells. When ctx is done the lists end with what was looked at till then; each is then
// shorter than the paths that were given for it.
func (l *Locker) InspectAll(ctx context.Context, locks, tokens, temps []string) Infos {
	infos := Infos{
		Locks:  make([]Info, len(locks)),
		Tokens: make([]TokenInfo, len(tokens)),
		Temps:  make([]TempInfo, len(temps)),
	}
	k := l.look(l.table().Batch())
	all := len(locks) + len(tokens) + len(temps)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(all, maxWorkers, max(4, runtime.GOMAXPROCS(0))) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= all {
					return
				}
				infos.glance(k, i, locks, tokens, temps)
				if l.Looked != nil {
					l.Looked.Add(1)
				}
			}
		})
	}
	workers.Wait()
	// Whoever took a number finished it: what was looked at is a first part of all.
	done := min(all, int(next.Load()))
	infos.Locks = infos.Locks[:min(done, len(locks))]
	done -= len(infos.Locks)
	infos.Tokens = infos.Tokens[:min(done, len(tokens))]
	infos.Temps = infos.Temps[:done-len(infos.Tokens)]
	return infos
}

// glance looks at the i-th of all.
func (infos *Infos) glance(k *look, i int, locks, tokens, temps []string) {
	switch t := i - len(locks); {
	case t < 0:
		info := k.glanceAtLock(locks[i])
		info.Verdict = info.Facts.Glance(info.Facts.Look)
		infos.Locks[i] = info
	case t < len(tokens):
		info := k.glanceAtToken(tokens[t])
		info.Verdict = info.Facts.Glance(info.Facts.Look)
		infos.Tokens[t] = info
	default:
		t -= len(tokens)
		info := k.glanceAtTemp(temps[t])
		info.Verdict = info.Facts.Glance(info.Facts.Look)
		infos.Temps[t] = info
	}
}
