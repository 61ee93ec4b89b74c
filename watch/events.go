package watch

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/sweep"
)

// source tells of changes in directories. It is fsnotify's watcher, or a test's.
type source interface {
	Add(dir string) error
	Remove(dir string) error
	Events() <-chan fsnotify.Event
	Errors() <-chan error
	Close() error // joins whatever it started
}

// kernel is fsnotify's watcher. It tells of some errors while it keeps everybody else out, so that who waits in Add or
// Remove and is to read those errors would wait for ever: others read them.
type kernel struct {
	*fsnotify.Watcher
	errors chan error
	done   chan struct{}
}

func (k kernel) Events() <-chan fsnotify.Event { return k.Watcher.Events }
func (k kernel) Errors() <-chan error          { return k.errors }

func (k kernel) Close() error {
	err := k.Watcher.Close()
	<-k.done
	return err
}

// drain hands on one error at a time: many mean no more than one.
func (k kernel) drain() {
	defer close(k.done)
	defer close(k.errors)
	for err := range k.Watcher.Errors {
		select {
		case k.errors <- err:
		default:
		}
	}
}

// burst is how many events may wait to be heard. With few, all but those of a storm wait in the kernel, where they wake
// nobody one by one; with none, whoever listens would have to wait for each.
const burst = 16

func openKernel() (source, error) {
	w, err := fsnotify.NewBufferedWatcher(burst)
	if err != nil {
		return nil, err
	}
	k := kernel{w, make(chan error, 1), make(chan struct{})}
	go k.drain()
	return k, nil
}

// watched is a directory of which the source tells.
type watched struct {
	place place
	roots []int     // whose look listed it
	since time.Time // changes after this are told
}

// openSource asks for the one source of this Run, unless it is there.
func (e *engine) openSource() {
	if e.source != nil {
		return
	}
	open := e.w.open
	if open == nil {
		open = openKernel
	}
	e.source, e.noSource = open()
	if e.noSource != nil {
		e.source = nil
	}
}

// reasonOf says why the kernel does not tell of changes. What to raise comes first: the end is cut on a narrow screen.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return watchLimit + ": no more directories can be watched"
	case errors.Is(err, syscall.EMFILE):
		return instanceLimit + ": no watcher can be had"
	default:
		return err.Error()
	}
}

// follow makes the source tell of the directories of the i-th root and of no others. It reports whether the root must be
// looked at again: a directory is watched only now, and what changed in it before may not have been seen, or it went, and
// may be back, since the look that listed it.
func (e *engine) follow(i int) (again bool) {
	r := e.roots[i]
	wanted := func(dir string) bool { return false }
	r.refused = nil
	if e.source != nil && r.place != (place{}) && r.root.Local {
		wanted = func(dir string) bool { _, ok := r.dirs[dir]; return ok }
		for dir, f := range r.dirs {
			news, err := e.add(i, dir, f.place)
			again = again || news
			if err != nil {
				r.refused = err
			}
		}
	}
	r.rewatch = false
	e.unfollow(i, wanted)
	return again
}

// add makes the source tell of a directory of the i-th root; news says that it was not watched before, or went. The error
// says why it cannot; a directory that went, or whose look said already that it cannot be read, is none.
func (e *engine) add(i int, dir string, p place) (news bool, err error) {
	if p == (place{}) {
		return false, nil
	}
	old := e.dirs[dir]
	known := old != nil && old.place == p
	if known && !e.roots[i].rewatch {
		old.add(i)
		return false, nil
	}
	if old != nil && !known {
		_ = e.source.Remove(dir) // of the directory that was there: its end must not be taken for this one's
	}
	since := time.Now()
	switch err = e.source.Add(dir); {
	case err == nil && known:
		old.add(i)
		return false, nil
	case err == nil:
		d := &watched{place: p, since: since}
		if old != nil {
			d.roots = old.roots
		}
		d.add(i)
		e.dirs[dir] = d
		return true, nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		delete(e.dirs, dir)
		return true, nil
	case errors.Is(err, os.ErrPermission):
		delete(e.dirs, dir)
		return false, nil
	default:
		delete(e.dirs, dir)
		return false, err
	}
}

// tellMode tells how the i-th root is watched, and why not by the kernel.
func (e *engine) tellMode(i int) {
	r := e.roots[i]
	root := &r.root
	poll := func(reason string) { root.Watch, root.Every, root.Reason = pollMode, max(pollGap, r.every), reason }
	switch {
	case r.place == place{}:
		root.Watch = noMode
	case !root.Local:
		poll(fmt.Sprintf("changes on %s are not all told by the kernel", cmp.Or(root.FS, "this file system")))
	case e.source == nil:
		poll(reasonOf(e.noSource))
	case r.refused != nil:
		poll(reasonOf(r.refused))
	case !r.deafAt.IsZero():
		poll("changes were found that the kernel did not tell of")
	default:
		root.Watch, root.Every, root.Reason = eventMode, 0, ""
	}
}

// unfollow drops the directories of the i-th root but for those that are wanted.
func (e *engine) unfollow(i int, wanted func(dir string) bool) {
	for dir, d := range e.dirs {
		if wanted(dir) || !d.drop(i) || len(d.roots) > 0 {
			continue
		}
		delete(e.dirs, dir)
		if e.source != nil {
			_ = e.source.Remove(dir) // it may be gone, and its watch with it
		}
	}
}

func (d *watched) add(root int) {
	if !slices.Contains(d.roots, root) {
		d.roots = append(d.roots, root)
	}
}

// drop reports whether the root was among those of the directory.
func (d *watched) drop(root int) bool {
	i := slices.Index(d.roots, root)
	if i < 0 {
		return false
	}
	d.roots = slices.Delete(d.roots, i, i+1)
	return true
}

// hear takes note of an event: what must be looked at again. Events are hints; what they say is not believed.
// What it names is looked at at that time.
func (e *engine) hear(ev fsnotify.Event, at time.Time) {
	now := time.Now()
	if d := e.dirs[ev.Name]; d != nil {
		// The directory itself: if it was moved or removed, its watch went with it, by whatever path it was asked for last.
		moved := ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)
		if moved {
			delete(e.dirs, ev.Name)
		}
		for _, i := range d.roots {
			e.roots[i].stir(now)
			e.roots[i].rewatch = e.roots[i].rewatch || moved
		}
	}
	d := e.dirs[filepath.Dir(ev.Name)]
	if d == nil {
		return
	}
	stem := ""
	for _, i := range d.roots {
		switch r := e.roots[i]; {
		case sweep.IsEntry(filepath.Base(ev.Name)):
			if stem == "" {
				stem = sweep.Stem(ev.Name)
			}
			r.touch(ev.Name, at)
			delete(r.suspects, stem)
		case r.path == ev.Name || isNewDir(ev): // a root that is a file may have any name
			r.stir(now)
		}
	}
	e.hearPoll(ev, now)
}

// isNewDir reports whether an event may be of a directory that was not there, or not open, before. Builds and indexers
// write a great many files beside the locks: those must not cost a look each. A directory that goes is told of by its
// own watch.
func isNewDir(ev fsnotify.Event) bool {
	if !ev.Has(fsnotify.Create) && !ev.Has(fsnotify.Chmod) {
		return false
	}
	info, err := os.Lstat(ev.Name)
	return err == nil && info.IsDir()
}

// watchedSince reports whether the source tells of an entry's directory since before t.
func (e *engine) watchedSince(en *Entry, t time.Time) bool {
	d := e.dirs[filepath.Dir(en.Path)]
	return d != nil && d.since.Before(t)
}
