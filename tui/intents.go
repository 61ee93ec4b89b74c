package tui

import (
	"slices"
	"strings"
	"unicode/utf8"

	"holdfast/watch"
)

// press finds out who a key is for: the question that is open, the line that is typed, or the list.
func (m *model) press(k keyPress) []command {
	if k.pasted {
		k.single = false
		switch {
		case m.layout().class == tiny:
		case m.dialog != nil:
			return m.answer(k)
		case m.input != nil:
			m.edit(k)
		case m.palette != nil:
			return m.pressPalette(k)
		}
		return nil
	}
	if k.single && k.name == "ctrl+c" {
		return m.interrupt()
	}
	if m.layout().class == tiny {
		return m.pressTiny(k)
	}
	switch {
	case m.dialog != nil:
		return m.answer(k)
	case m.input != nil:
		m.edit(k)
		return nil
	case m.palette != nil:
		return m.pressPalette(k)
	case m.actions != nil:
		return m.chooseAction(k)
	}
	m.note = note{}
	if !k.single {
		m.pressChunk(k)
		return nil
	}
	what := m.intentOf(k)
	if m.help {
		m.doHelp(what)
		return nil
	}
	return m.do(what)
}

// pressTiny knows only how to leave: what cannot be read must not be acted on.
func (m *model) pressTiny(k keyPress) []command {
	if m.dialog != nil && m.dialog.kind == dialogQuit {
		return m.answer(k)
	}
	if m.intentOf(k) == intentQuit {
		return m.quit()
	}
	return nil
}

// pressChunk is for characters that arrived at once, as on a slow line: keys that move the cursor do, and a filter is
// typed. Anything else may be a paste or a torn report and does nothing, which is said: least of all what changes something.
func (m *model) pressChunk(k keyPress) {
	if m.help || !utf8.ValidString(k.text) {
		m.sayChunk()
		return
	}
	if term, ok := strings.CutPrefix(k.text, "/"); ok {
		m.do(intentFilter)
		m.edit(keyPress{text: term})
		return
	}
	if verb, ok := strings.CutPrefix(k.text, ":"); ok {
		m.do(intentPalette)
		m.pressPalette(keyPress{text: verb})
		return
	}
	var moves []intent
	for _, r := range k.text {
		what := m.intentOf(keyPress{name: string(r), single: true})
		if what < firstMove || what > lastMove {
			m.sayChunk()
			return
		}
		moves = append(moves, what)
	}
	for _, what := range moves {
		m.do(what)
	}
}

// chunkWords tell whoever typed faster than the line carries why nothing happened.
const chunkWords = "Several keys came at once; press one at a time."

func (m *model) sayChunk() { m.say(chunkWords) }

// interrupt is ^c: it asks as quitting does, and a second one does not.
func (m *model) interrupt() []command {
	if m.dialog != nil && m.dialog.kind == dialogQuit {
		return []command{{quit: true}}
	}
	m.input, m.palette, m.actions, m.help = nil, nil, nil, false
	return m.quit()
}

func (m *model) quit() []command {
	if len(m.held) == 0 {
		return []command{{quit: true}}
	}
	m.dialog = m.askQuit()
	return nil
}

// do carries out an intent, whether a key or a verb said it.
func (m *model) do(what intent) []command {
	if m.focused || m.zoomed {
		if m.scrollBy(what) {
			return nil
		}
	}
	if at, moved := scrolled(m.cursor, what, max(1, (m.layout().list.h-1)/2), len(m.rows)-1); moved {
		m.goTo(at)
		return nil
	}
	switch what {
	case intentNextProblem:
		m.nextProblem(1)
	case intentPreviousProblem:
		m.nextProblem(-1)
	case intentFilter:
		m.input = newInput(m.filter, m.selected)
	case intentSort:
		m.sort = (m.sort + 1) % columns
		m.refill()
	case intentReverse:
		m.reversed = !m.reversed
		m.refill()
	case intentAll:
		m.showRows(allRows)
	case intentProblems:
		m.showRows(problemRows)
	case intentWaiting:
		m.showRows(waitingRows)
	case intentLitter:
		m.showRows(litterRows)
	case intentMine:
		m.showRows(mineRows)
	case intentFocus:
		m.focused = !m.focused && m.layout().detail.h > 0
	case intentPreviousTab:
		m.turn(-1)
	case intentNextTab:
		m.turn(1)
	case intentOpen:
		m.zoom(true)
	case intentZoom:
		m.zoom(!m.zoomed)
	case intentBack:
		m.back()
	case intentPause:
		m.pause()
	case intentCopyPath:
		return m.copyPath()
	case intentCopyNonce:
		return m.copyNonce()
	case intentCopyNext:
		return m.copyNext()
	case intentClaim:
		m.dialog = m.planClaim()
	case intentAcquire:
		m.dialog = m.planAcquire()
	case intentRelease:
		m.dialog = m.planChange(intentRelease)
	case intentBreak:
		m.dialog = m.planChange(intentBreak)
	case intentSweep:
		var plan []command
		m.dialog, plan = m.planSweep()
		return plan
	case intentActions:
		m.openActions()
	case intentVerify:
		return m.verify()
	case intentPalette:
		m.palette = newPalette()
	case intentRescan:
		return m.askRescan()
	case intentExport:
		return m.export()
	case intentMark:
		m.toggleMark()
	case intentMouse:
		return m.toggleMouse()
	case intentHelp:
		m.help, m.helpTop = true, 0
	case intentQuit:
		return m.quit()
	case intentInterrupt:
		return m.interrupt()
	case intentSuspend:
		return m.suspend()
	default:
	}
	return nil
}

// showRows changes which entries the list shows; what is shown already goes back to all. The problems begin at what is
// stuck: the headline sends people there.
func (m *model) showRows(which kindOfRows) {
	if m.shows == which {
		which = allRows
	}
	m.shows = which
	m.refill()
	if which == problemRows {
		m.goToStuck()
	}
}

// goToStuck puts the cursor on the first row of what is stuck, unless it is on one already.
func (m *model) goToStuck() {
	if r := m.current(); r != nil && isStuck(r.entry) {
		return
	}
	if at := slices.IndexFunc(m.rows, func(r *row) bool { return isStuck(r.entry) }); at >= 0 {
		m.goTo(at)
	}
}

// isStuck reports whether the headline counts the entry.
func isStuck(e *watch.Entry) bool {
	return e.Verdict.Stuck && (e.Kind == watch.Lease || e.Kind == watch.Lock)
}

// stuckFirst orders the problems: what does not clear by itself comes before all that does.
func (m *model) stuckFirst(a, b *row) int {
	if m.shows != problemRows || isStuck(a.entry) == isStuck(b.entry) {
		return 0
	}
	if isStuck(a.entry) {
		return -1
	}
	return 1
}

// goTo puts the cursor on a row, within the list.
func (m *model) goTo(at int) {
	if len(m.rows) == 0 {
		return
	}
	m.cursor = max(0, min(at, len(m.rows)-1))
	if want := m.rows[m.cursor].ref(); want != m.selected {
		m.selected, m.scroll = want, 0
	}
}

func (m *model) nextProblem(step int) {
	for i := 1; i <= len(m.rows); i++ {
		at := ((m.cursor+i*step)%len(m.rows) + len(m.rows)) % len(m.rows)
		if m.rows[at].entry.IsProblem() {
			m.goTo(at)
			return
		}
	}
	m.say("No entry that is listed is a problem.")
}

// scrolled is where a position goes by an intent that moves it, within 0 and end; false for any other intent.
func scrolled(at int, what intent, page, end int) (to int, ok bool) {
	switch what {
	case intentDown:
		at++
	case intentUp:
		at--
	case intentPageDown:
		at += page
	case intentPageUp:
		at -= page
	case intentFirst:
		at = 0
	case intentLast:
		at = end
	default:
		return at, false
	}
	return max(0, min(at, end)), true
}

// scrollBy moves the text of the detail; false if the intent is none that scrolls.
func (m *model) scrollBy(what intent) (ok bool) {
	d := m.layout().detail
	m.scroll, ok = scrolled(m.scroll, what, max(1, (d.h-1)/2), max(0, len(m.detailLines(d))-max(1, d.h-1)))
	return ok
}

func (m *model) turn(step int) {
	m.tab = tab((int(m.tab) + step + int(tabs)) % int(tabs))
	m.scroll = 0
}

func (m *model) zoom(in bool) {
	m.zoomed = in && m.current() != nil
	m.focused, m.scroll = false, 0
}

// back takes one step: it closes what was opened last, and never leaves the screen.
func (m *model) back() {
	switch {
	case len(m.losses) > 0:
		m.losses = nil
	case m.zoomed:
		m.zoom(false)
	case m.focused:
		m.focused = false
	case len(m.marked) > 0:
		m.marked = nil
	case m.filter.text != "":
		m.filter = filter{}
		m.refill()
	case m.shows != allRows:
		m.shows = allRows
		m.refill()
	}
}

// pause freezes the picture, time included; going on shows what was hidden.
func (m *model) pause() {
	m.paused = !m.paused
	if m.paused {
		return
	}
	m.now = m.clock
	changes := m.later
	m.later, m.hidden = nil, 0
	if m.fresh != nil && m.fresh != m.snap {
		m.show(changes)
	}
}

func (m *model) copyPath() []command {
	r := m.current()
	if r == nil {
		return nil
	}
	m.say("Sent to the clipboard: %s", r.entry.Path)
	return []command{{copy: r.entry.Path}}
}

func (m *model) copyNonce() []command {
	r := m.current()
	if m.refused(intentCopyNonce, r) {
		return nil
	}
	nonce := nonceOf(r.entry)
	m.say("Sent to the clipboard: %s", nonce)
	return []command{{copy: nonce}}
}

// copyNext sends the best next step to the clipboard, as a command that works anywhere.
func (m *model) copyNext() []command {
	r := m.current()
	if m.refused(intentCopyNext, r) {
		return nil
	}
	v := r.entry.Judge(m.now)
	steps := nextSteps(m.snap, r.entry, &v)
	m.say("Sent to the clipboard: %s", steps[0])
	return []command{{copy: steps[0]}}
}

func (m *model) suspend() []command {
	switch {
	case len(m.held) > 0:
		m.complain("Not suspended: a stopped screen cannot keep what it holds (%s). R releases it.", m.heldWords())
		return nil
	case m.working > 0:
		m.complain("Not suspended: a change is under way.")
		return nil
	}
	return []command{{suspend: true}}
}

// doHelp is what keys do while the help is open.
func (m *model) doHelp(what intent) {
	var moved bool
	if m.helpTop, moved = scrolled(m.helpTop, what, max(1, m.layout().body.h/2), len(m.helpLines(m.w))); moved {
		return
	}
	switch what {
	case intentBack, intentHelp, intentQuit, intentOpen:
		m.help = false
	default:
	}
}

// edit changes the filter's line; every word of it that can be read applies at once.
func (m *model) edit(k keyPress) {
	switch m.input.press(k) {
	case inputDone:
		if m.input.err != nil {
			return // it is said in place; the line stays until it can be read
		}
		m.input = nil
		return
	case inputGone:
		m.filter, m.selected, m.input = m.input.before, m.input.selected, nil
		m.refill()
		return
	case inputOpen:
	}
	// A word that cannot be read, or not yet, filters nothing: a list that is empty half-way looks like an answer.
	m.filter, m.input.err = parseFilter(m.input.value())
	m.selected = m.input.selected
	m.refill()
}
