BEGIN TRANSACTION;
CREATE TABLE controller (
	id INTEGER NOT NULL, 
	policy JSON NOT NULL, 
	unit_slots INTEGER NOT NULL, 
	submitted INTEGER NOT NULL, 
	decided INTEGER NOT NULL, 
	triggers_made INTEGER NOT NULL, 
	last_pass FLOAT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "controller" VALUES(1,'{"sharing": "dynamic-priority", "rescheduling": null, "default_priority": 2}',1,2,3,1,1010.0);
CREATE TABLE decisions (
	number INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	pipeline VARCHAR(200) NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	"before" INTEGER NOT NULL, 
	"after" INTEGER NOT NULL, 
	why TEXT NOT NULL, 
	rejected JSON NOT NULL, 
	expected JSON NOT NULL, 
	pass_number INTEGER, 
	overhead JSON, 
	PRIMARY KEY (number)
);
INSERT INTO "decisions" VALUES(1,1000.0,'a','start',0,3,'''a'' was submitted; dynamic-priority gives it 3 of the 3 it desires','[]','{"units": 3, "slots_gained": 3, "rate": 30.0, "meets_target": null}',1,'{"drained_s": 0.0, "placed_s": 4.0, "first_tuple_s": 0.0, "total_s": 4.0}');
INSERT INTO "decisions" VALUES(2,1000.0,'a','shrink',3,2,'''b'' was submitted; dynamic-priority gives it 2 of the 3 it desires','[{"alternative": "3, as it desires", "why": "all together desire 5 of 4"}, {"alternative": "3, as before", "why": "dynamic-priority with what everybody desires now gives 2"}]','{"units": 2, "slots_gained": 0, "rate": 20.0, "meets_target": null}',2,'{"drained_s": 0.0, "placed_s": 4.0, "first_tuple_s": 0.0, "total_s": 4.0}');
INSERT INTO "decisions" VALUES(3,1000.0,'b','start',0,2,'''b'' was submitted; dynamic-priority gives it 2 of the 2 it desires','[]','{"units": 2, "slots_gained": 2, "rate": 20.0, "meets_target": null}',2,'{"drained_s": 0.0, "placed_s": 4.0, "first_tuple_s": 0.0, "total_s": 4.0}');
CREATE TABLE events (
	id INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	subject VARCHAR(200) NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	"before" TEXT, 
	"after" TEXT, 
	why TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "events" VALUES(1,1000.0,'a','state',NULL,'submitted','submitted');
INSERT INTO "events" VALUES(2,1000.0,'a','state','submitted','starting','3 slots');
INSERT INTO "events" VALUES(3,1000.0,'b','state',NULL,'submitted','submitted');
INSERT INTO "events" VALUES(4,1000.0,'b','state','submitted','starting','1 slots');
INSERT INTO "events" VALUES(5,1000.0,'a','trigger',NULL,'added','trigger 1: arrival rate above 80/s');
INSERT INTO "events" VALUES(6,1004.0,'a','message','manager','pipeline','activate with 2');
INSERT INTO "events" VALUES(7,1004.0,'a','state','starting','active','its driver is up');
INSERT INTO "events" VALUES(8,1004.0,'a','message','pipeline','manager','first tuple');
INSERT INTO "events" VALUES(9,1004.0,'b','message','manager','pipeline','activate with 2');
INSERT INTO "events" VALUES(10,1004.0,'b','state','starting','active','its driver is up');
INSERT INTO "events" VALUES(11,1004.0,'b','message','pipeline','manager','first tuple');
CREATE TABLE holdings (
	kind VARCHAR(10) NOT NULL, 
	node VARCHAR(200) NOT NULL, 
	slot INTEGER NOT NULL, 
	pipeline VARCHAR(200) NOT NULL, 
	position INTEGER NOT NULL, 
	PRIMARY KEY (kind, node, slot)
);
INSERT INTO "holdings" VALUES('assigned','n1',0,'a',0);
INSERT INTO "holdings" VALUES('assigned','n2',0,'a',1);
INSERT INTO "holdings" VALUES('requested','n1',0,'a',0);
INSERT INTO "holdings" VALUES('requested','n2',0,'a',1);
INSERT INTO "holdings" VALUES('held','n1',0,'a',0);
INSERT INTO "holdings" VALUES('held','n2',0,'a',1);
INSERT INTO "holdings" VALUES('may_hold','n1',0,'a',0);
INSERT INTO "holdings" VALUES('may_hold','n2',0,'a',1);
INSERT INTO "holdings" VALUES('assigned','n3',0,'b',0);
INSERT INTO "holdings" VALUES('assigned','n4',0,'b',1);
INSERT INTO "holdings" VALUES('requested','n3',0,'b',0);
INSERT INTO "holdings" VALUES('requested','n4',0,'b',1);
INSERT INTO "holdings" VALUES('held','n3',0,'b',0);
INSERT INTO "holdings" VALUES('held','n4',0,'b',1);
INSERT INTO "holdings" VALUES('may_hold','n3',0,'b',0);
INSERT INTO "holdings" VALUES('may_hold','n4',0,'b',1);
CREATE TABLE lease (
	id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	until FLOAT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "lease" VALUES(1,1,'host',4711,0.0);
CREATE TABLE meta (
	"key" VARCHAR(40) NOT NULL, 
	value VARCHAR(200), 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema','3');
CREATE TABLE metrics (
	subject VARCHAR(1000) NOT NULL, 
	metric VARCHAR(40) NOT NULL, 
	seconds INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	value FLOAT NOT NULL, 
	PRIMARY KEY (subject, metric, seconds, at)
);
INSERT INTO "metrics" VALUES('a','rate',10,1000.0,1002.5);
INSERT INTO "metrics" VALUES('a','needed',10,1000.0,1.0);
INSERT INTO "metrics" VALUES('a','held',10,1000.0,2.0);
INSERT INTO "metrics" VALUES('a','fairness',10,1000.0,6.66666666666666629659e-01);
INSERT INTO "metrics" VALUES('a','priority',10,1000.0,2.0);
INSERT INTO "metrics" VALUES('a','deaths',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('a/X','rate_in',10,1000.0,1002.5);
INSERT INTO "metrics" VALUES('/n1','cpu',10,1000.0,0.5);
INSERT INTO "metrics" VALUES('/n1','memory_mb',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('/n1','slots_used',10,1000.0,1.0);
INSERT INTO "metrics" VALUES('/n2','cpu',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('/n2','memory_mb',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('/n2','slots_used',10,1000.0,1.0);
INSERT INTO "metrics" VALUES('/n3','cpu',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('/n3','memory_mb',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('/n3','slots_used',10,1000.0,1.0);
INSERT INTO "metrics" VALUES('/n4','cpu',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('/n4','memory_mb',10,1000.0,0.0);
INSERT INTO "metrics" VALUES('/n4','slots_used',10,1000.0,1.0);
INSERT INTO "metrics" VALUES('a','rate',10,1010.0,1012.5);
INSERT INTO "metrics" VALUES('a','needed',10,1010.0,1.0);
INSERT INTO "metrics" VALUES('a','held',10,1010.0,2.0);
INSERT INTO "metrics" VALUES('a','fairness',10,1010.0,6.66666666666666629659e-01);
INSERT INTO "metrics" VALUES('a','priority',10,1010.0,2.0);
INSERT INTO "metrics" VALUES('a','deaths',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('a/X','rate_in',10,1010.0,1012.5);
INSERT INTO "metrics" VALUES('/n1','cpu',10,1010.0,0.5);
INSERT INTO "metrics" VALUES('/n1','memory_mb',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('/n1','slots_used',10,1010.0,1.0);
INSERT INTO "metrics" VALUES('/n2','cpu',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('/n2','memory_mb',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('/n2','slots_used',10,1010.0,1.0);
INSERT INTO "metrics" VALUES('/n3','cpu',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('/n3','memory_mb',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('/n3','slots_used',10,1010.0,1.0);
INSERT INTO "metrics" VALUES('/n4','cpu',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('/n4','memory_mb',10,1010.0,0.0);
INSERT INTO "metrics" VALUES('/n4','slots_used',10,1010.0,1.0);
CREATE TABLE nodes (
	name VARCHAR(200) NOT NULL, 
	position INTEGER NOT NULL, 
	rack VARCHAR(200) NOT NULL, 
	slots INTEGER NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	since FLOAT NOT NULL, 
	capacity JSON NOT NULL, 
	price FLOAT, 
	PRIMARY KEY (name)
);
INSERT INTO "nodes" VALUES('n1',0,'r1',1,'alive',0.0,'{"cpu": 100.0, "memory_mb": 3584.0}',NULL);
INSERT INTO "nodes" VALUES('n2',1,'r1',1,'alive',0.0,'{"cpu": 100.0, "memory_mb": 3584.0}',NULL);
INSERT INTO "nodes" VALUES('n3',2,'r1',1,'alive',0.0,'{"cpu": 100.0, "memory_mb": 3584.0}',NULL);
INSERT INTO "nodes" VALUES('n4',3,'r1',1,'alive',0.0,'{"cpu": 100.0, "memory_mb": 3584.0}',NULL);
CREATE TABLE passes (
	number INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	cause TEXT NOT NULL, 
	inputs JSON NOT NULL, 
	shares JSON NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "passes" VALUES(1,1000.0,'''a'' was submitted','{"sharing": "dynamic-priority", "unit_slots": 1, "nodes": [{"rack": "r1", "slots": 1, "capacity": {"cpu": 100.0, "memory_mb": 3584.0}, "names": ["n1", "n2", "n3", "n4"]}], "pipelines": [{"name": "a", "desired": 3, "minimum": 2, "priority": 2, "waited": 0.0, "fairness": 1.0, "slots": []}]}','{"a": 3}');
INSERT INTO "passes" VALUES(2,1000.0,'''b'' was submitted','{"sharing": "dynamic-priority", "unit_slots": 1, "nodes": [{"rack": "r1", "slots": 1, "capacity": {"cpu": 100.0, "memory_mb": 3584.0}, "names": ["n1", "n2", "n3", "n4"]}], "pipelines": [{"name": "a", "desired": 3, "minimum": 2, "priority": 2, "waited": 0.0, "fairness": 1.0, "slots": [["n1", 0], ["n2", 0], ["n3", 0]]}, {"name": "b", "desired": 2, "minimum": 1, "priority": 2, "waited": 0.0, "fairness": 1.0, "slots": []}]}','{"a": 2, "b": 2}');
CREATE TABLE pipelines (
	name VARCHAR(200) NOT NULL, 
	number INTEGER NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	since FLOAT NOT NULL, 
	priority INTEGER NOT NULL, 
	rest JSON NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "pipelines" VALUES('a',1,'active',1004.0,2,'{"target": {"rate": null, "latency_ms": null}, "minimum": 2, "initial_priority": 2, "maximum": 3, "load": "10", "pending_priority": null, "paused": false, "needed": 1, "serial": 2, "incarnation": 1, "forced": false, "deaths": 0, "retry_at": null, "waiting": null, "waiting_since": null, "served": {"allocated": 20.0, "needed": 30.0}, "change": null, "elastic": null, "elastic_units": null}');
INSERT INTO "pipelines" VALUES('b',2,'active',1004.0,2,'{"target": {"rate": null, "latency_ms": null}, "minimum": 1, "initial_priority": 2, "maximum": null, "load": "5", "pending_priority": null, "paused": false, "needed": 1, "serial": 2, "incarnation": 1, "forced": false, "deaths": 0, "retry_at": null, "waiting": null, "waiting_since": null, "served": {"allocated": 20.0, "needed": 20.0}, "change": null, "elastic": null, "elastic_units": null}');
CREATE TABLE submissions (
	name VARCHAR(200) NOT NULL, 
	submission JSON NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "submissions" VALUES('a','{"name": "a", "pipeline": "linear", "definition": null, "fingerprint": "", "target": {"rate": null, "latency_ms": null}, "desired": 3, "minimum": 2, "maximum": 3, "priority": null, "engine": "auto", "load": "10", "elastic": null, "plan": null}');
INSERT INTO "submissions" VALUES('b','{"name": "b", "pipeline": "linear", "definition": null, "fingerprint": "", "target": {"rate": null, "latency_ms": null}, "desired": 2, "minimum": 1, "maximum": null, "priority": null, "engine": "auto", "load": "5", "elastic": null, "plan": null}');
CREATE TABLE thread_windows (
	pipeline VARCHAR(200) NOT NULL, 
	at FLOAT NOT NULL, 
	readings BLOB NOT NULL, 
	PRIMARY KEY (pipeline, at)
);
INSERT INTO "thread_windows" VALUES('a',1000.0,X'78018B8E568A50D251CA3354D231D0A9562A4A2C498DCFCC53B2323530D43332AD8D8D0500960E0927');
INSERT INTO "thread_windows" VALUES('a',1010.0,X'78018B8E568A50D251CA3354D231D0A9562A4A2C498DCFCC53B2323530D33332AD8D8D05009631092C');
CREATE TABLE triggers (
	pipeline VARCHAR(200) NOT NULL, 
	id INTEGER NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	enabled BOOLEAN NOT NULL, 
	"on" BOOLEAN NOT NULL, 
	rest JSON NOT NULL, 
	PRIMARY KEY (pipeline, id)
);
INSERT INTO "triggers" VALUES('a',1,'arrival-rate',1,0,'{"above": 80.0, "below": null, "share": 0.8, "field": "", "code": "", "for_seconds": 3.0, "priority": 1, "on_since": null, "leaning_since": null, "by_hand": false}');
CREATE INDEX ix_holdings_pipeline ON holdings (pipeline);
CREATE INDEX ix_events_subject ON events (subject);
CREATE INDEX ix_events_at ON events (at);
CREATE INDEX ix_decisions_at ON decisions (at);
CREATE INDEX ix_decisions_pipeline ON decisions (pipeline);
CREATE INDEX metrics_by_age ON metrics (seconds, at);
CREATE INDEX ix_thread_windows_at ON thread_windows (at);
COMMIT;
