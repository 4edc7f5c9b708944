package server

import (
	"bytes"
	"context"

	"trainyard/internal/clock"
	"trainyard/internal/server/fanout"
	"trainyard/internal/server/httpapi"
)

// fork returns a source that reads on from the same place.
func (l *logSource) fork() *logSource {
	r := *l.logReader
	r.at, r.marks, r.upTo = r.at.Clone(), nil, nil

	return &logSource{logReader: &r, input: l.input, stale: true}
}

// itemBuffer collects items for all who follow.
type itemBuffer struct{ data []byte }

// Add implements itemWriter.
func (b *itemBuffer) Add(cursor, kind string, v any) bool {
	data, err := httpapi.AppendItem(b.data, cursor, kind, v)
	b.data = data

	return err == nil
}

// take returns what was added, in no more memory than that needs: it may be kept for a while.
func (b *itemBuffer) take() []byte {
	data := bytes.Clone(b.data)
	b.data = b.data[:0]

	return data
}

// shareLogs reads the output of a job once for all who follow it, until it ends.
func (s *Server) shareLogs(
	ctx context.Context,
	src *logSource,
	known jobNews,
	feed *fanout.Feed[logKey, logPlace],
) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.ErrorContext(ctx, "reading output panicked", "job", src.job.ID, "panic", p, "stack", stack())
			err = errInternal()
		}
	}()

	buffer := &itemBuffer{}
	news := &jobFeed{s: s, out: buffer, jobNews: known}
	joint := src.joint()

	for {
		page, err := src.read(ctx)
		if err != nil {
			return err
		}

		for i := range page.lines {
			if !buffer.Add(src.marks[i], "", &page.lines[i]) {
				return errInternal()
			}
		}

		before := joint
		joint = ""
		if !page.more {
			joint = src.joint()
		}

		item := fanout.Item[logPlace]{
			Data: buffer.take(), Lines: len(page.lines), Joint: joint, After: logPlace{at: src.at.Clone(), news: news.known()},
		}
		if len(item.Data) > 0 || joint != before {
			feed.Publish(item)
		}

		if !news.send(ctx, &src.job, src.newest) {
			return errInternal()
		}

		then := logPlace{at: item.After.at, news: news.known()}
		if len(buffer.data) > 0 {
			feed.Publish(fanout.Item[logPlace]{Data: buffer.take(), Joint: joint, After: then})
		}

		switch {
		case page.done:
			if !buffer.Add("", "end", toJob(&src.job)) {
				return errInternal()
			}

			then.end = true
			feed.End(fanout.Item[logPlace]{Data: buffer.take(), Joint: joint, After: then})

			return nil
		case page.more:
			feed.Pace(ctx, batchEvery)
		case !s.waitForBatch(ctx, src, news, page.wait, item.Lines > 0):
			return ctx.Err()
		}
	}
}

// waitForBatch waits until there is more. After lines it waits a little at least, so that those of a job that prints
// without pause come together.
func (s *Server) waitForBatch(
	ctx context.Context, src *logSource, news *jobFeed, channels []<-chan struct{}, collect bool,
) bool {
	if collect && !clock.Sleep(ctx, batchEvery) {
		return false
	}

	return src.wait(ctx, nil, news, channels)
}
