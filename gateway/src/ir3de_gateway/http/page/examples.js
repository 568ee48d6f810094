// Prompts to try: those that this router surely gives to one of its experts, out of a list of our own and out of what can
// be questions about the experts' names. No text that a router was fitted from is ever shown, because people may have
// written it.

import { requestJSON } from "./api.js";
import { learn } from "./colors.js";

const SEVERAL_SUBJECTS = [
  "How did lawyers in ancient Rome prove that a will was forged?",
  "The tenant stopped paying rent after breaking a leg: may the landlord terminate the lease?",
  "Is a contract void if one side cannot boil an egg?",
  "Write a function that proves a theorem",
  "What did doctors prescribe against fever in the Middle Ages?",
  "How do I scale a recipe from four people to seven with fractions?",
];
const ONE_SUBJECT = [
  "Write a SQL query for the ten largest orders of each customer.",
  "Why does my Python function return None?",
  "How do I merge two branches in git?",
  "Prove that √2 is irrational.",
  "Solve 3x + 5 = 20 for x.",
  "What is the derivative of x squared times sin x?",
  "Can my landlord keep the deposit after the lease has ended?",
  "Is a contract void if one side was forced to sign it?",
  "May my employer dismiss me without notice?",
  "Why does a fever rise in the evening, and when should I call a doctor?",
  "What are the symptoms of iron deficiency?",
  "Why did the Roman Empire fall?",
  "Who was king of France during the revolution?",
  "How long do I boil an egg?",
  "Why does my bread dough not rise?",
  "Should I pay off my mortgage early or buy shares?",
  "How is compound interest on a loan computed?",
  "Where can I see my last invoice?",
  "How do I get a refund for my order?",
  "I forgot my password. How do I reset it?",
  "When will my parcel arrive?",
  "Why is the sky blue?",
  "How fast does a stone fall after two seconds?",
  "Which acid reacts with calcium carbonate?",
  "How do plants turn light into sugar?",
  "What does a neuron do when it fires?",
  "Translate 'good morning' into French.",
  "Correct the grammar of this sentence: he go to school.",
  "Write a short poem about the sea.",
  "Summarise the plot of Hamlet.",
  "Which chords are in the key of G major?",
  "What should I see in Rome in two days?",
  "When should I prune my roses?",
  "Who won the world cup in 1998?",
  "What is the difference between a right and a duty in Kant?",
  "Write a product description for a raincoat.",
  "How do I tie a bowline?",
  "How do I change the tyre of my car?",
];
const ABOUT_A_NAME = [(name) => `Question about ${name}`, (name) => `I have a question about ${name}.`, (name) => `Can you help me with ${name}?`];
const MOST = 7;
const MOST_NAMES = 40; // experts whose names are tried
const LEAST = 0.7; // the probability from which on a prompt is an example: a guess at a strange prompt is none
const LEAST_OF_SECOND = 0.05; // the probability of the next expert that makes a prompt one of two subjects

let known = ""; // the router that the examples were chosen for
let chosen = [];

const rank = (row) => row.confidence ?? row.expected_score ?? 0;
const isSure = (row) => row.expert !== null && !row.abstained && !row.out_of_domain;
const isExample = (row) => isSure(row) && (row.expected_score !== undefined || rank(row) >= LEAST);

async function route(input) {
  const found = await requestJSON("v1/route", { method: "POST", body: { input } });
  return { ...found, rows: found.data.map((row, index) => ({ ...row, text: input[index] })) };
}

// Where the experts are models, which expect a score of every prompt, their names are no subjects.
async function routeNames(experts) {
  const questions = experts.slice(0, MOST_NAMES).flatMap((name) => ABOUT_A_NAME.map((about) => ({ name, text: about(name.replace(/[_-]+/g, " ").trim()) })));
  const { rows } = await route(questions.map((one) => one.text));
  return rows.filter((row, index) => row.expert === questions[index].name && row.expected_score === undefined);
}

// The best prompt for each expert, and one that two experts have a part in: [{text, experts}, …].
export async function findExamples(router) {
  if (router && router === known) return chosen;
  const found = await route([...SEVERAL_SUBJECTS, ...ONE_SUBJECT]);
  learn(found.experts);
  const mixed = found.rows.filter(isExample).find((row) => SEVERAL_SUBJECTS.includes(row.text) && (row.ranking[1]?.probability ?? 0) >= LEAST_OF_SECOND);
  const best = new Map();
  for (const row of [...found.rows, ...(await routeNames(found.experts))].filter(isExample)) {
    if (row !== mixed && rank(row) > rank(best.get(row.expert) ?? { confidence: -1 })) best.set(row.expert, row);
  }
  const single = found.experts.filter((name) => best.has(name)).map((name) => ({ text: best.get(name).text, experts: [name] }));
  const both = mixed ? [{ text: mixed.text, experts: mixed.ranking.slice(0, 2).map((one) => one.expert) }] : [];
  chosen = [...both, ...single].slice(0, MOST);
  known = found.router;
  return chosen;
}
