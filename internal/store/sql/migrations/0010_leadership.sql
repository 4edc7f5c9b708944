-- Which server leads the yard, and which servers there are. The term is the primary key so that PostgreSQL lets the
-- leader renew its lease while one of its commits, which locks the row FOR KEY SHARE, is under way, but lets nobody
-- begin another term before that commit has ended.
CREATE TABLE leadership (
	term BIGINT PRIMARY KEY,
	one BIGINT NOT NULL UNIQUE CHECK (one = 1),
	holder TEXT NOT NULL,
	address TEXT NOT NULL,
	lease BIGINT NOT NULL,
	renewals BIGINT NOT NULL
);
INSERT INTO leadership (term, one, holder, address, lease, renewals) SELECT term, 1, '', '', 0, 0 FROM meta;
CREATE TABLE servers (
	name TEXT COLLATE "C" PRIMARY KEY,
	address TEXT NOT NULL,
	seen BIGINT NOT NULL
);
ALTER TABLE meta DROP COLUMN holder;
ALTER TABLE meta DROP COLUMN term;
ALTER TABLE meta DROP COLUMN acquired;
