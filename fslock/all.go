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

// maxWorkers bounds the goroutines of one InspectEach: the work is system calls on one disk.
const maxWorkers = 8

// Each takes what InspectEach finds, with the place of its path in the list of its kind. Several goroutines call it at the
// same time.
type Each struct {
	Lock  func(i int, info Info)
	Token func(i int, info TokenInfo)
	Temp  func(i int, info TempInfo)
	// Listed says that the tokens are all that the locks' directories listed, a moment ago: of a lock that has a record
	// and none of them none is looked for, as if the lock had been looked at then.
	Listed bool
}

// InspectAll looks at many locks, tokens and temps as InspectEach does, and keeps all that was found. When ctx is done the
// lists end with what was looked at till then; each is then shorter than the paths that were given for it.
func (l *Locker) InspectAll(ctx context.Context, locks, tokens, temps []string) Infos {
	infos := Infos{
		Locks:  make([]Info, len(locks)),
		Tokens: make([]TokenInfo, len(tokens)),
		Temps:  make([]TempInfo, len(temps)),
	}
	done := l.InspectEach(ctx, locks, tokens, temps, Each{
		Lock:  func(i int, info Info) { infos.Locks[i] = info },
		Token: func(i int, info TokenInfo) { infos.Tokens[i] = info },
		Temp:  func(i int, info TempInfo) { infos.Temps[i] = info },
	})
	infos.Locks = infos.Locks[:min(done, len(locks))]
	done -= len(infos.Locks)
	infos.Tokens = infos.Tokens[:min(done, len(tokens))]
	infos.Temps = infos.Temps[:done-len(infos.Tokens)]
	return infos
}

// InspectEach looks at many locks, tokens and temps, and tells each of what Inspect, InspectToken and InspectTemp give of
// it, with one look at the process table for all. The verdicts are without Evidence, Originals and Next, which Judge of the
// Facts tells. It returns how many were told: less than all only when ctx is done, and then the first ones, locks before
// tokens before temps.
func (l *Locker) InspectEach(ctx context.Context, locks, tokens, temps []string, each Each) (told int) {
	all := len(locks) + len(tokens) + len(temps)
	if all == 0 {
		return 0
	}
	k := l.look(l.table().Batch())
	if each.Listed {
		k.listed = make(map[string]bool, len(tokens))
		for _, token := range tokens {
			k.listed[token] = true
		}
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(all, maxWorkers, max(4, runtime.GOMAXPROCS(0))) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= all {
					return
				}
				switch t := i - len(locks); {
				case t < 0:
					info := k.glanceAtLock(locks[i])
					info.Verdict = info.Facts.Glance(info.Facts.Look)
					each.Lock(i, info)
				case t < len(tokens):
					info := k.glanceAtToken(tokens[t])
					info.Verdict = info.Facts.Glance(info.Facts.Look)
					each.Token(t, info)
				default:
					t -= len(tokens)
					info := k.glanceAtTemp(temps[t])
					info.Verdict = info.Facts.Glance(info.Facts.Look)
					each.Temp(t, info)
				}
				if l.Looked != nil {
					l.Looked.Add(1)
				}
			}
		})
	}
	workers.Wait()
	// Whoever took a number finished it: what was looked at is a first part of all.
	return min(all, int(next.Load()))
}
