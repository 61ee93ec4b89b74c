package watch

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
)

// Watcher looks at roots. Its fields are not changed after first use; its methods may be called at the same time,
// Run once at a time. It remembers what stayed unchanged from look to look, so that one Watcher used for long sees
// more than many: a stamp in the future is told by watching.
//
// Looking writes nothing, takes no lock, follows no link below a root. What it cannot promise: that a snapshot is
// one moment of all files (each is read in turn), and that what comes and goes between two looks is seen.
type Watcher struct {
	// Roots are what to look at: Path and ChosenBy of each; the other fields are filled in snapshots. Required.
	Roots    []Root
	Table    *proc.Table  // how processes are looked at; nil: this machine
	Log      *slog.Logger // nil: discards
	ReadOnly bool         // what Store and Locker return refuses every change

	seq     atomic.Uint64
	mu      sync.Mutex
	rescans chan chan struct{}      // nil: nobody asked yet
	stores  map[string]*lease.Store // by directory
	locker  *fslock.Locker
	names   map[string]*sweep.Names                     // by root
	open    func() (source, error)                      // nil: fsnotify
	fsOf    func(path string) (name string, local bool) // nil: record.FileSystem
	spent   func() time.Duration                        // nil: this process's processor time
	past    past
	looked  atomic.Int64
}

// Looked is how many leases, locks, tokens and temps were looked at in the listings of roots till now, the same ones
// again in every look: while the first Look, or the first look of Run, is under way, how far it is. It waits for nothing.
// What is only being searched for does not count yet, and a file that goes before it is shown did.
func (w *Watcher) Looked() int { return int(w.looked.Load()) }

// Look looks at all roots once. The error is the context's; a place that cannot be looked at is in the snapshot's
// Errors, a missing root has the kind "missing". A directory or file that several roots lead to, by whatever links
// or mounts, is shown once, under the first of them.
func (w *Watcher) Look(ctx context.Context) (*Snapshot, error) {
	looks := make([]*rootLook, len(w.Roots))
	for i := range w.Roots {
		looks[i] = w.lookAt(ctx, i)
		if ctx.Err() == nil {
			w.sections(looks[i].entries)
		}
		looks[i].root.Watch = noMode
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := w.assemble(looks, time.Now(), (*Entry).Judge)
	pollers(s.Entries, nil)
	s.Seq = w.seq.Add(1)
	return s, nil
}

// Store returns the store of a directory of leases, such as that of an Entry's Path: always the same one, so that
// what was seen of a lease counts when it is claimed.
func (w *Watcher) Store(dir string) *lease.Store {
	dir = filepath.Clean(dir)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stores[dir]
	if s == nil {
		s = &lease.Store{Dir: dir, Table: w.Table, Log: w.Log, ReadOnly: w.ReadOnly, Looked: &w.looked}
		if w.stores == nil {
			w.stores = make(map[string]*lease.Store)
		}
		w.stores[dir] = s
	}
	return s
}

// Locker returns the Locker that looks at all locks, tokens and temps: always the same one, so that what was seen of a
// lock counts when it is taken or broken.
func (w *Watcher) Locker() *fslock.Locker {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locker == nil {
		w.locker = &fslock.Locker{Table: w.Table, Log: w.Log, ReadOnly: w.ReadOnly, Looked: &w.looked}
	}
	return w.locker
}

// namesOf returns what decodes the names below a root; it is kept as long as the root stays what it is.
func (w *Watcher) namesOf(l sweep.Layout) *sweep.Names {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.names[l.Root]
	if n == nil || n.Layout.Kind != l.Kind || !slices.Equal(n.Layout.LeaseDirs, l.LeaseDirs) {
		n = &sweep.Names{Layout: l}
		if w.names == nil {
			w.names = make(map[string]*sweep.Names)
		}
		w.names[l.Root] = n
	}
	return n
}

func (w *Watcher) table() *proc.Table {
	if w.Table != nil {
		return w.Table
	}
	return proc.Local()
}

func (w *Watcher) log() *slog.Logger {
	if w.Log != nil {
		return w.Log
	}
	return slog.New(slog.DiscardHandler)
}

// rootLook is what one look at one root gave. Its entries are judged anew for every snapshot; all else stays.
type rootLook struct {
	root      Root
	path      string // the root's, absolute; empty: nothing is there
	place     place  // what the root leads to; zero: nothing
	entries   []Entry
	errors    []EntryError
	dirs      []string // what is to be watched
	leaseDirs []string
	at        time.Time // when the look began
}

// place is a directory or file by identity, whatever path or link led to it.
type place struct {
	dev, ino uint64
	path     string // where the system tells no numbers: the cleaned path
}

// lookAt looks at the i-th root, but not at who waits there. A finished context makes the look incomplete.
func (w *Watcher) lookAt(ctx context.Context, i int) *rootLook {
	look := &rootLook{at: time.Now()}
	look.root = Root{Path: w.Roots[i].Path, ChosenBy: w.Roots[i].ChosenBy}
	layout, err := sweep.Recognise(look.root.Path)
	look.root.Kind = layout.Kind.String()
	if layout.Kind.Has(sweep.Missing) {
		look.root.Reason = "there is nothing at this path"
		if err != nil {
			look.root.Reason = err.Error()
			look.fail(layout.Root, err)
		}
		return look
	}
	look.place, _ = placeOf(layout.Root)
	look.path = layout.Root
	look.leaseDirs = layout.LeaseDirs
	look.root.FS, look.root.Local = w.fileSystem(layout.Root)

	found := layout.Find(ctx)
	look.dirs = watchDirs(layout, found)
	for _, e := range found.Errors {
		look.fail(e.Path, e.Err)
	}
	names := w.namesOf(layout)
	w.lookAtLeases(ctx, look, layout)
	w.lookAtLocks(ctx, look, found)
	for i := range look.entries {
		e := &look.entries[i]
		name := names.Of(e.Path)
		e.Root, e.Name, e.Checkout = look.root.Path, name.Short, name.Path
	}
	return look
}

func (w *Watcher) fileSystem(path string) (name string, local bool) {
	if w.fsOf != nil {
		return w.fsOf(path)
	}
	return record.FileSystem(path)
}

func (w *Watcher) processorTime() time.Duration {
	if w.spent != nil {
		return w.spent()
	}
	return processorTime()
}

// fail takes note of a place that could not be looked at, once.
func (l *rootLook) fail(path string, err error) {
	if !slices.ContainsFunc(l.errors, func(e EntryError) bool { return e.Path == path }) {
		l.errors = append(l.errors, EntryError{Path: path, Err: err})
	}
}

func (w *Watcher) lookAtLeases(ctx context.Context, look *rootLook, layout sweep.Layout) {
	for _, dir := range layout.LeaseDirs {
		var infos []lease.Info
		var err error
		if layout.LeaseID == "" {
			infos, err = w.Store(dir).List(ctx)
		} else {
			infos = make([]lease.Info, 1)
			// Look, for no claim is granted for some of the names that a lease file can have.
			infos[0], err = w.Store(dir).Look(layout.LeaseID)
		}
		if err != nil {
			if ctx.Err() == nil {
				look.fail(dir, err)
			}
			continue
		}
		look.entries = slices.Grow(look.entries, len(infos))
		for _, info := range infos {
			look.entries = append(look.entries, leaseEntry(info))
		}
	}
}

// brief is a verdict without what only a person reads: every snapshot judges anew, and between two of them what a look
// gives is kept, perhaps for hours.
func brief(v verdict.Verdict) verdict.Verdict {
	v.Evidence, v.Originals, v.Next = nil, nil, nil
	return v
}

func leaseEntry(info lease.Info) Entry {
	return Entry{
		Kind: Lease, Path: info.Path, ID: info.ID, Subject: info.Facts, Verdict: brief(info.Verdict),
		Epoch: info.Epoch, Raw: info.Raw,
	}
}

// lookAtLocks looks at locks, tokens and temps. What went since it was found is left out; a lock that is missing
// is free and shows only as long as a token or temp of it is there.
func (w *Watcher) lookAtLocks(ctx context.Context, look *rootLook, found sweep.Found) {
	infos := w.Locker().InspectAll(ctx, found.Locks, found.Tokens, found.Temps)
	var beside []Entry
	for _, info := range infos.Tokens {
		if !info.Facts.Missing {
			beside = append(beside, tokenEntry(info))
		}
	}
	for _, info := range infos.Temps {
		if !info.Facts.Missing {
			beside = append(beside, tempEntry(info))
		}
	}
	wanted := make(map[string]bool, len(beside))
	for i := range beside {
		wanted[beside[i].LockOf] = true
	}
	look.entries = slices.Grow(look.entries, len(infos.Locks)+len(beside))
	for _, info := range infos.Locks {
		if !info.Facts.Missing || wanted[info.Path] || info.Token != nil {
			look.entries = append(look.entries, lockEntry(info))
		}
	}
	look.entries = append(look.entries, beside...)
}

func lockEntry(info fslock.Info) Entry {
	return Entry{
		Kind: Lock, Path: info.Path, Subject: info.Facts, Verdict: brief(info.Verdict), Token: info.Token, Raw: info.Raw,
	}
}

func tokenEntry(info fslock.TokenInfo) Entry {
	return Entry{
		Kind: Token, Path: info.Path, Subject: info.Facts, Verdict: brief(info.Verdict), LockOf: sweep.LockOf(info.Path),
		Raw: info.Raw,
	}
}

func tempEntry(info fslock.TempInfo) Entry {
	return Entry{
		Kind: Temp, Path: info.Path, Subject: info.Facts, Verdict: brief(info.Verdict), LockOf: sweep.LockOf(info.Path),
		Raw: info.Raw,
	}
}

// assemble makes one snapshot of looks at all roots, judged by how at now. The looks' entries are judged in place.
func (w *Watcher) assemble(looks []*rootLook, now time.Time, how func(*Entry, time.Time) verdict.Verdict) *Snapshot {
	s := &Snapshot{Time: now, Observer: w.table().Self()}
	size := 0
	for _, look := range looks {
		size += len(look.entries)
	}
	s.Entries = make([]*Entry, 0, size)
	once := newOnce(looks)
	for i, look := range looks {
		if once.root(i) {
			continue
		}
		s.Roots = append(s.Roots, look.root)
		judge(look.entries, now, how)
		start := len(s.Entries)
		for j := range look.entries {
			if e := &look.entries[j]; once.entry(e) {
				c := *e
				s.Entries = append(s.Entries, &c)
			}
		}
		slices.SortFunc(s.Entries[start:], func(a, b *Entry) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path))
		})
		for _, e := range look.errors {
			if !slices.ContainsFunc(s.Errors, func(old EntryError) bool { return old.Path == e.Path }) {
				s.Errors = append(s.Errors, e)
			}
		}
	}
	return s
}

// once tells what was shown already.
type once struct {
	looks   []*rootLook
	several bool // several directories may be one: identities must be compared
	places  map[string]place
	shown   map[shown]bool
}

// shown is an entry by the identity of its directory.
type shown struct {
	dir  place
	name string
}

func newOnce(looks []*rootLook) *once {
	o := &once{looks: looks}
	o.several = len(looks) > 1 || len(looks) == 1 && len(looks[0].leaseDirs) > 1
	if o.several {
		o.places, o.shown = make(map[string]place), make(map[shown]bool)
	}
	return o
}

// root reports whether an earlier root leads to the same place as the i-th, or names the same missing one.
func (o *once) root(i int) bool {
	l := o.looks[i]
	return slices.ContainsFunc(o.looks[:i], func(old *rootLook) bool {
		if l.place == (place{}) {
			return old.place == (place{}) && filepath.Clean(old.root.Path) == filepath.Clean(l.root.Path)
		}
		return old.place == l.place
	})
}

// entry reports whether e is to be shown: no entry of the same name in the same directory was.
func (o *once) entry(e *Entry) bool {
	if !o.several {
		return true
	}
	dir, name := filepath.Split(e.Path)
	p, ok := o.places[dir]
	if !ok {
		p, _ = placeOf(dir)
		o.places[dir] = p
	}
	key := shown{dir: p, name: name}
	if o.shown[key] {
		return false
	}
	o.shown[key] = true
	return true
}

// judge judges entries by how at now, with several workers where there are many.
func judge(entries []Entry, now time.Time, how func(*Entry, time.Time) verdict.Verdict) {
	const share = 256
	var next atomic.Int64
	work := func() {
		for {
			end := int(next.Add(share))
			if end-share >= len(entries) {
				return
			}
			for i := end - share; i < min(end, len(entries)); i++ {
				e := &entries[i]
				e.Verdict = how(e, now)
				if f, ok := e.Subject.(*verdict.LockFacts); ok && f.Token != nil {
					token := f.Token.Token(now)
					e.Token = &token
				}
			}
		}
	}
	if len(entries) <= share {
		work()
		return
	}
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(entries)+share-1)/share) {
		workers.Go(work)
	}
	workers.Wait()
}

// watchDirs are the directories whose changes can change what lies below a root: all that were listed, and those
// in which a missing directory of leases would appear.
func watchDirs(l sweep.Layout, found sweep.Found) []string {
	dirs := slices.Clone(found.Dirs)
	if l.Kind.Has(sweep.File) {
		return dirs
	}
	for _, way := range [...][]string{{"agents", "registry"}, {"shared", "agents", "registry"}} {
		dir := l.Root
		for _, name := range way {
			dir = filepath.Join(dir, name)
			if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
				break
			}
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// placeOf returns what a path leads to, links followed; a link that leads nowhere is a place itself.
func placeOf(path string) (place, error) {
	info, err := os.Stat(path)
	if err != nil {
		if info, err = os.Lstat(path); err != nil {
			return place{}, err
		}
	}
	if dev, ino, ok := record.Inode(info); ok {
		return place{dev: dev, ino: ino}, nil
	}
	return place{path: filepath.Clean(path)}, nil
}
