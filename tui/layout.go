package tui

// class is which of the layouts a size gets.
type class uint8

const (
	tiny    class = iota // a card; actions are off
	compact              // list and one line of verdict; the detail takes the screen when asked for
	medium               // list, five lines of detail, three events
	wide                 // list left, detail right, events below when there is room
)

// rect is a part of the screen, in cells.
type rect struct{ x, y, w, h int }

// layout says what goes where. It depends on nothing but the size, the number of notices, and whether the
// detail takes the whole body.
type layout struct {
	class   class
	w, h    int
	notices rect
	body    rect // everything between the notices and the footer
	list    rect // its first line is the head of the columns
	detail  rect // its first line is its title; h 0: not shown
	verdict rect // the one line of the compact layout
	events  rect // its first line is its title; h 0: not shown
	footer  rect
}

const (
	minWidth, minHeight = 50, 10
	wideWidth           = 120
	mediumWidth         = 80
	tallHeight          = 24
	eventsHeight        = 28 // from here the wide layout has events
	mediumDetail        = 5
	mediumEvents        = 3
	wallWidth           = 2 // between list and detail
)

func classOf(w, h int) class {
	switch {
	case w < minWidth || h < minHeight:
		return tiny
	case w < mediumWidth || h < tallHeight:
		return compact
	case w < wideWidth:
		return medium
	default:
		return wide
	}
}

// maxNotices is how many lines of notices a layout has room for.
func maxNotices(w, h int) int {
	switch classOf(w, h) {
	case wide:
		return 4
	case medium:
		return 2
	case compact, tiny:
		return 1
	}
	return 1
}

// arrange lays out a screen of w by h cells.
func arrange(w, h, notices int, zoomed bool) layout {
	l := layout{class: classOf(w, h), w: w, h: h}
	if l.class == tiny {
		return l
	}
	notices = min(notices, maxNotices(w, h))
	const top = 2 // header and headline
	l.notices = rect{0, top, w, notices}
	l.footer = rect{0, h - 1, w, 1}
	l.body = rect{0, top + notices, w, h - top - notices - 1}
	b := l.body
	if zoomed {
		l.detail = b
		return l
	}
	switch l.class {
	case tiny:
	case compact:
		l.list = rect{b.x, b.y, w, b.h - 1}
		l.verdict = rect{b.x, b.y + b.h - 1, w, 1}
	case medium:
		events, detail := 1+mediumEvents, 1+mediumDetail
		l.list = rect{b.x, b.y, w, b.h - events - detail}
		l.detail = rect{b.x, b.y + l.list.h, w, detail}
		l.events = rect{b.x, b.y + l.list.h + detail, w, events}
	case wide:
		events := 0
		if h >= eventsHeight {
			events = 1 + min(max(mediumEvents, h/6), 10)
		}
		right := w * 38 / 100
		l.list = rect{b.x, b.y, w - right - wallWidth, b.h - events}
		l.detail = rect{w - right, b.y, right, b.h - events}
		l.events = rect{b.x, b.y + b.h - events, w, events}
	}
	return l
}

// The narrowest that a name is shown before a column is dropped: when a thing clears is worth more than its name.
const (
	minName     = 26
	minNameLeft = 20
)

// What a longer name or holder needs more than this is not taken from the other.
const (
	enoughName   = 36
	enoughHolder = 24
)

// gutter is the room for the cursor's mark before the first column.
const gutter = 2

// columnsFor returns how many columns fit into w cells, and how wide the name is.
func columnsFor(w int) (count Column, name int) {
	name = w - gutter - ColState.width() - 1
	count = ColName + 1
	for c := ColBeat; c < columns; c++ {
		least := minName
		if c <= ColLeft {
			least = minNameLeft
		}
		if name-c.width()-1 < least {
			break
		}
		name -= c.width() + 1
		count = c + 1
	}
	return count, max(0, name)
}
