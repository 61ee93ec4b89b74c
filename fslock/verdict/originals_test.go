package verdict

import (
	"math"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
)

// under changes what stands under the recorded pid, which is all that the originals look at.
func under(u proc.Under) func(*proc.Finding) { return func(p *proc.Finding) { p.Under = u } }

var (
	nobodyThere  = under(proc.Under{})
	anotherOne   = under(proc.Under{Exists: true, Readable: true, StartTicks: 778, StartUnix: 1001})
	unseen       = under(proc.Under{Exists: true})
	threeHoursOn = -3 * time.Hour
)

func leaseUnder(u func(*proc.Finding)) leaseMod { return func(f *LeaseFacts) { u(&f.Proc) } }
func lockUnder(u func(*proc.Finding)) lockMod   { return func(f *LockFacts) { u(&f.Proc) } }
func tokenUnder(u func(*proc.Finding)) tokenMod { return func(f *TokenFacts) { u(&f.Proc) } }

// TestWhatAgentMuxWouldDo has the situations that its own tests show, and those in which it does what is not safe.
func TestWhatAgentMuxWouldDo(t *testing.T) {
	const s = time.Second
	damaged := counter(Counter{Problem: &garbage})
	lost := counter(Counter{Missing: true})
	planted := func(e *LeaseFacts) { e.Counter = Counter{Problem: &fifo} }
	old := func(f *LeaseFacts) {
		r := f.Record
		r.PID, r.Epoch, r.Hostname, r.PIDStartS, r.Channel, r.Version, r.ClaimID = 1, 0, "", 0, "", "", ""
	}
	for name, tc := range map[string]struct {
		f    *LeaseFacts
		does string
		why  string
	}{
		"there is no lease":                               {leaseFacts(0, noLease), "takes it", "no lease file"},
		"a fresh lease of a running holder":               {leaseFacts(3 * s), "refuses", "pid 4242 runs and renewed 3s ago"},
		"the TTL to the millisecond":                      {leaseFacts(15 * s), "refuses", ""},
		"the TTL and a millisecond":                       {leaseFacts(15*s + time.Millisecond), "takes it", "over the TTL"},
		"a store of ours with a longer TTL means nothing": {leaseFacts(16*s, func(f *LeaseFacts) { f.TTL = time.Minute }), "takes it", "over the TTL"},
		"a fresh file that does not parse":                {leaseFacts(5*s, badLease(garbage)), "refuses", "held until its file time is over the TTL"},
		"one that nobody rewrote for a TTL":               {leaseFacts(16*s, badLease(garbage)), "takes it", "nobody rewrote the unreadable file for 16s"},
		"one from the future":                             {leaseFacts(threeHoursOn, badLease(garbage)), "refuses", ""},
		"the old format is honoured":                      {leaseFacts(4*s, old), "refuses", "no host or pid is recorded"},
		"no pid is recorded":                              {leaseFacts(4*s, func(f *LeaseFacts) { f.Record.PID = 0 }), "refuses", "no host or pid"},
		"the holder's process is gone":                    {leaseFacts(2*s, leaseUnder(nobodyThere)), "takes it", "it sees no process 4242"},
		"the pid was used again":                          {leaseFacts(2*s, leaseUnder(anotherOne), func(f *LeaseFacts) { f.Record.PIDStartS = 4600 }), "takes it", "start time"},
		"no start is recorded, somebody has the pid":      {leaseFacts(2*s, leaseUnder(anotherOne), func(f *LeaseFacts) { f.Record.PIDStartS = 0 }), "refuses", ""},
		"another host is never presumed dead":             {leaseFacts(2*s, leaseUnder(nobodyThere), func(f *LeaseFacts) { f.Record.Hostname = "web02" }), "refuses", "another host"},
		"another host, expired":                           {leaseFacts(16*s, func(f *LeaseFacts) { f.Record.Hostname = "web02" }), "takes it", "over the TTL"},
		"our host is compared in lower case":              {leaseFacts(2*s, func(f *LeaseFacts) { f.Host = " VM \n" }), "refuses", "pid 4242 runs"},
		"a recorded host in upper case is another":        {leaseFacts(2*s, leaseUnder(nobodyThere), func(f *LeaseFacts) { f.Record.Hostname = "VM" }), "refuses", "another host"},

		"unsafe: a clock step moved the start by a second":   {leaseFacts(2*s, func(f *LeaseFacts) { f.Record.PIDStartS++ }), "takes it", "not exactly the recorded one"},
		"unsafe: the holder is hidden from us":               {leaseFacts(2*s, leaseUnder(unseen)), "takes it", "it sees no process"},
		"unsafe: the holder is in another pid namespace":     {leaseFacts(2*s, leaseProc(hidden("another pid namespace"))), "takes it", "it sees no process"},
		"unsafe: file time of another machine means nothing": {leaseFacts(16*s, leaseOn("web02"), func(f *LeaseFacts) { f.File.ModTime = now }), "takes it", "over the TTL"},
		"unsafe: a stamp of the future is believed":          {leaseFacts(threeHoursOn), "refuses", "renewed 0s ago"},
		"unsafe: an age that is too large for it is none":    {leaseFacts(0, func(f *LeaseFacts) { f.Record.RenewedAtMS = math.MinInt64 }), "refuses", ""},
		"unsafe: damaged counter, no lease":                  {leaseFacts(0, noLease, damaged), "takes it", "its epochs would restart at 1"},
		"unsafe: damaged counter, an old build's lease":      {leaseFacts(20*s, old, damaged), "takes it", "its epochs would restart at 1"},
		"unsafe: counter missing, lease unreadable":          {leaseFacts(16*s, badLease(garbage), lost), "takes it", "its epochs would restart at 1"},
		"damaged counter, the lease knows":                   {leaseFacts(20*s, damaged), "takes it", "over the TTL"},
		"no counter yet":                                     {leaseFacts(0, noLease, lost), "takes it", "no lease file"},
		"unsafe: a FIFO for a counter":                       {leaseFacts(20*s, planted), "hangs", "renewed 20s ago, over the TTL, but it opens the epoch counter, a FIFO"},
		"a FIFO for a counter is not read to refuse":         {leaseFacts(2*s, planted), "refuses", ""},
		"unsafe: somebody is stopped inside": {leaseFacts(2*s, func(f *LeaseFacts) {
			f.Inside = []proc.FlockHolder{{Process: proc.Process{PID: 99}, Stopped: true}}
		}), "hangs", "pid 99 is stopped inside"},
		"unsafe: a FIFO for a flock file":    {leaseFacts(2*s, func(f *LeaseFacts) { f.Section = &fifo }), "hangs", "the flock file, a FIFO"},
		"unsafe: a symlink for a flock file": {leaseFacts(2*s, func(f *LeaseFacts) { f.Section = &symlink }), "follows it", "the link at the flock file"},
		"a directory for a flock file":       {leaseFacts(2*s, func(f *LeaseFacts) { f.Section = &dir }), "fails", "the flock file is a directory"},
		"unsafe: a FIFO for a lease":         {leaseFacts(0, badLease(fifo)), "hangs", "the lease, a FIFO"},
		"unsafe: a symlink for a lease":      {leaseFacts(0, badLease(symlink)), "follows it", "the link at the lease"},
		"unsafe: a lease without bounds":     {leaseFacts(0, badLease(tooLarge)), "reads it", "whatever its size"},
		"a directory for a lease":            {leaseFacts(0, badLease(dir)), "fails", "the lease is a directory"},
		"a lease that may not be read":       {leaseFacts(0, badLease(denied)), "fails", "cannot be opened by this user"},
	} {
		t.Run(name, func(t *testing.T) { checkOriginal(t, tc.f.Judge(now), "AgentMux", tc.does, tc.why) })
	}
}

// TestWhatAFTWouldDo has the situations that its own tests show, and those in which it does what is not safe.
func TestWhatAFTWouldDo(t *testing.T) {
	const s = time.Second
	stale := func(mods ...lockMod) *LockFacts {
		return lockFacts(2*s, append([]lockMod{lockProc(gone(proc.Gone))}, mods...)...)
	}
	legacy := func(f *LockFacts) { f.Record.ProcessStartTime, f.Record.BootID = nil, nil }
	token := func(age time.Duration, mods ...tokenMod) lockMod { return with(tokenFacts(age, mods...)) }
	for name, tc := range map[string]struct {
		f    *LockFacts
		does string
		why  string
	}{
		"there is no lock":                        {lockFacts(0, noLock), "takes it", "no lock file"},
		"a healthy holder":                        {lockFacts(2 * s), "waits", "pid 4242 runs"},
		"a living holder without heartbeat":       {lockFacts(60 * s), "waits", "pid 4242 runs"},
		"a living holder for over ten minutes":    {lockFacts(2*s, func(f *LockFacts) { f.Record.CreatedAtMS = 0 }), "waits", ""},
		"a paused holder":                         {lockFacts(60*s, lockProc(standing(proc.Stopped))), "waits", ""},
		"a dead pid":                              {stale(), "takes it", "it sees no process 4242"},
		"a dead pid of an old build":              {stale(legacy), "takes it", "it sees no process 4242"},
		"a living pid of an old build":            {lockFacts(60*s, legacy), "waits", "pid 4242 exists"},
		"a living pid with another start":         {lockFacts(2*s, lockUnder(anotherOne)), "takes it", "another process than the recorded one"},
		"a living pid with another boot id":       {lockFacts(2*s, func(f *LockFacts) { f.Record.BootID = new("wrong") }), "takes it", "another boot id"},
		"no boot id is recorded":                  {lockFacts(2*s, func(f *LockFacts) { f.Record.BootID = nil }), "waits", "pid 4242 runs"},
		"our boot id cannot be read":              {lockFacts(2*s, lockUnder(anotherOne), func(f *LockFacts) { f.Boot = "" }), "waits", "pid 4242 exists"},
		"the start of the pid cannot be read":     {lockFacts(2*s, lockUnder(unseen)), "waits", "pid 4242 exists"},
		"pid 0":                                   {lockFacts(2*s, func(f *LockFacts) { f.Record.PID = 0 }), "takes it", "no process 0"},
		"a pid that would turn negative":          {lockFacts(2*s, func(f *LockFacts) { f.Record.PID = 1 << 31 }), "takes it", "no process 2147483648"},
		"the largest pid":                         {lockFacts(2*s, func(f *LockFacts) { f.Record.PID = 1<<31 - 1 }), "waits", ""},
		"another host":                            {lockFacts(5*s, lockOn("web02")), "waits", "of another host, heartbeat 5s ago"},
		"another host, to the limit":              {lockFacts(75*s, lockOn("web02")), "waits", ""},
		"another host, over the limit":            {lockFacts(75*s+time.Millisecond, lockOn("web02")), "takes it", "no heartbeat for 75s"},
		"another host, heartbeat of the future":   {lockFacts(threeHoursOn, lockOn("web02")), "waits", ""},
		"another host, heartbeat without end":     {lockFacts(0, lockOn("web02"), func(f *LockFacts) { f.Record.HeartbeatAtMS = math.MaxUint64 }), "waits", ""},
		"a dead token is reaped with the lock":    {stale(token(time.Hour, tokenProc(gone(proc.Gone)))), "takes it", "clears the token first"},
		"a living token blocks":                   {stale(token(time.Minute)), "waits", "blocked by a token: pid 4242 runs"},
		"a token of another host is honoured":     {stale(token(time.Hour, func(f *TokenFacts) { f.Record.Hostname = "old-host" })), "waits", "a token of another host, which it honours for ever"},
		"a token with another start":              {stale(token(time.Minute, tokenUnder(anotherOne))), "takes it", "clears the token first"},
		"a token with another boot id":            {stale(token(time.Minute, func(f *TokenFacts) { f.Record.BootID = new("wrong") })), "takes it", "clears the token first"},
		"a token of an old build, pid exists":     {stale(token(time.Minute, func(f *TokenFacts) { f.Record.ProcessStartTime = nil })), "waits", "pid 4242 exists"},
		"a malformed token, to the limit":         {stale(token(60*s, badToken(torn))), "waits", "malformed token of under a minute"},
		"a malformed token, over the limit":       {stale(token(60*s+1, badToken(torn))), "takes it", "clears the token first"},
		"a malformed token of the future":         {stale(token(threeHoursOn, badToken(torn))), "waits", ""},
		"a token that is gone by now":             {stale(with(&TokenFacts{Seen: Seen{Missing: true}})), "takes it", "it sees no process 4242"},
		"a token that nobody looked at":           {stale(with(&TokenFacts{})), "takes it", "it sees no process 4242"},
		"a token beside a living lock":            {lockFacts(2*s, token(time.Minute)), "waits", "pid 4242 runs"},
		"another host, silent, a token blocks":    {lockFacts(80*s, lockOn("web02"), token(time.Minute)), "waits", "but blocked by a token"},
		"a directory for a token":                 {stale(token(0, badToken(dir))), "fails", "it sees no process 4242 here, but the token is a directory"},
		"unsafe: a FIFO for a token":              {stale(token(0, badToken(fifo))), "hangs", "the token, a FIFO"},
		"unsafe: a symlink for a token":           {stale(token(0, badToken(symlink))), "follows it", ""},
		"unsafe: a file that does not parse":      {lockFacts(0, badLock(garbage)), "removes it and takes the lock", "does not parse twice within 100 ms"},
		"unsafe: an empty file":                   {lockFacts(0, badLock(empty)), "removes it and takes the lock", ""},
		"unsafe: a symlink":                       {lockFacts(0, badLock(symlink)), "spins", ""},
		"unsafe: a FIFO":                          {lockFacts(0, badLock(fifo)), "hangs", "the lock, a FIFO"},
		"a directory":                             {lockFacts(0, badLock(dir)), "fails", "the lock is a directory"},
		"unsafe: a file without bounds":           {lockFacts(0, badLock(tooLarge)), "reads it", ""},
		"a lock that may not be read":             {lockFacts(0, badLock(denied)), "fails", "cannot be opened by this user"},
		"unsafe: a zombie holds for ever":         {lockFacts(time.Hour, lockProc(gone(proc.Zombie))), "waits", "pid 4242 runs"},
		"unsafe: a renamed host is another":       {lockFacts(76*s, func(f *LockFacts) { f.Record.Hostname = "old-name" }, lockProc(standing(proc.Stopped))), "takes it", "of another host"},
		"unsafe: host names differ by their case": {lockFacts(76*s, func(f *LockFacts) { f.Record.Hostname = "VM" }), "takes it", "of another host"},
		"unsafe: another pid namespace":           {lockFacts(2*s, lockProc(hidden("another pid namespace"))), "takes it", "it sees no process"},
	} {
		t.Run(name, func(t *testing.T) { checkOriginal(t, tc.f.Judge(now), "AFT", tc.does, tc.why) })
	}
}

func checkOriginal(t *testing.T, v Verdict, system, does, why string) {
	t.Helper()
	if len(v.Originals) != 1 {
		t.Fatalf("%d originals", len(v.Originals))
	}
	o := v.Originals[0]
	if o.System != system || o.Does != does || !strings.Contains(o.Why, why) || o.Why == "" {
		t.Errorf("got  %s %s: %s\nwant %s %s: %s", o.System, o.Does, o.Why, system, does, why)
	}
}
