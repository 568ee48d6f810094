// Prompts to try: those of a list of our own that this router gives to one of its experts. No text that a router was
// fitted from is ever shown, because people may have written it.

import { askJSON } from "./api.js";
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
const MOST = 7;
const LEAST_OF_SECOND = 0.05; // the probability of the next expert that makes a prompt one of two subjects

let known = ""; // the router that the examples were chosen for
let chosen = [];

const isSure = (row) => row.expert !== null && !row.abstained && !row.out_of_domain;
const rank = (row) => row.confidence ?? row.expected_score ?? 0;

// The best prompt for each expert, and one that two experts have a part in: [{text, experts}, …].
export async function findExamples(router) {
  if (router && router === known) return chosen;
  const input = [...SEVERAL_SUBJECTS, ...ONE_SUBJECT];
  const found = await askJSON("v1/route", { method: "POST", body: { input } });
  learn(found.experts);
  const rows = found.data.map((row, index) => ({ ...row, text: input[index] })).filter(isSure);
  const mixed = rows.find((row) => SEVERAL_SUBJECTS.includes(row.text) && (row.ranking[1]?.probability ?? 0) >= LEAST_OF_SECOND);
  const best = new Map();
  for (const row of rows) {
    if (row !== mixed && rank(row) > rank(best.get(row.expert) ?? { confidence: -1 })) best.set(row.expert, row);
  }
  const single = found.experts.filter((name) => best.has(name)).map((name) => ({ text: best.get(name).text, experts: [name] }));
  const both = mixed ? [{ text: mixed.text, experts: mixed.ranking.slice(0, 2).map((one) => one.expert) }] : [];
  chosen = [...both, ...single].slice(0, MOST);
  known = found.router;
  return chosen;
}
