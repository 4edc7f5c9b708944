-- Which contents users have uploaded: a user refers to a content by its digest only if they have shown to have it. The
-- bytes are kept once, whoever uploads them. size is in bytes, and -1 for the manifest of a working directory that an
-- earlier version has taken: its files are entered by the server, which can read it.

CREATE TABLE possessions (
	owner TEXT NOT NULL,
	digest TEXT NOT NULL,
	size BIGINT NOT NULL,
	since BIGINT NOT NULL,
	PRIMARY KEY (owner, digest)
);

CREATE INDEX possessions_digest ON possessions (digest);
CREATE INDEX possessions_size ON possessions (owner, size);
CREATE INDEX possessions_unread ON possessions (digest) WHERE size < 0;

INSERT INTO possessions (owner, digest, size, since)
SELECT owner, workdir, -1, MIN(submitted) FROM jobs WHERE workdir <> '' GROUP BY owner, workdir;
